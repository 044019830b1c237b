/*
 * A model of go-redlock, small enough for spin to explore every history of two
 * clients on three nodes. README.md says how to run it, what in the code it
 * stands for, and what it leaves out.
 *
 * The network loses, delays and reorders: a command may be executed at any time
 * after it was sent, or never, and its reply may be lost. Losing a command
 * takes no step: one that is never executed is lost.
 *
 * Time has no numbers. What the model needs of it is what the drift allowance
 * is for: a node ends a lease only after the deadline that the client computed
 * for that lease has passed. So a deadline passes at any time, and the leases
 * behind it may then end at any later one.
 *
 * Without any -D it explores mutual exclusion, with one renewal of each lock.
 * -DNODES=5  explores five nodes instead of three
 * -DFENCING  explores fencing numbers instead
 * -DUNTIMED  (with FENCING) assumes nothing about time: a key may end at any
 *            moment, and no client looks at its clock
 *
 * Every other -D drops an assumption or breaks the algorithm; they follow.
 */

/* Assumption A1, rates. */
#if defined(EARLY_EXPIRY)       /* a node's clock is faster than the drift factor allows */
#define OVER(k, l) true
#elif defined(FENCING)
#define OVER(k, l) (phase[k] == ENDED)
#else
#define OVER(k, l) (phase[k] == ENDED || passed[k] > (l))
#endif

/*
 * Assumption A2, memory.
 * FORGETS         nodes restart without their keys, or with a key as it was before it was renewed
 * LOSES_COUNTERS  nodes lose fencing counters
 * GUARD           nodes that restarted abstain until what they may have forgotten is over
 */
#ifdef SHORT_GUARD              /* … no: its maxTTL is shorter than a TTL in use */
#define FORGETTABLE(k, l) true
#else
#define FORGETTABLE(k, l) OVER(k, l)
#endif

/* Assumption A3, agreement. */
#ifdef OTHER_NODES              /* client A has node 0 alone in its list */
#define LISTED(k) (CLIENT(k) == 0 -> BIT(0) : EVERY)
#else
#define LISTED(k) EVERY
#endif

/* The algorithm. */
#ifdef HALF                     /* N/2 votes are taken for a quorum */
#define QUORUM(k) (COUNT(LISTED(k)) / 2)
#else
#define QUORUM(k) (COUNT(LISTED(k)) / 2 + 1)
#endif
#if defined(NO_VALIDITY_CHECK)  /* a lock is handed out however late the deciding vote came */
#define OUTLIVES(k) (phase[k] == ASKING || passed[k] < extended[k])
#elif defined(NEVER_STOPS) || defined(LATE_RENEWAL) /* a client works, or only renews, after its deadline */
#define OUTLIVES(k) (phase[k] == HELD)
#else
#define OUTLIVES(k) (passed[k] < extended[k])
#endif
#ifdef LATE_RENEWAL
#define VALID(k) (phase[k] == HELD && passed[k] <= extended[k])
#else
#define VALID(k) (phase[k] == HELD)
#endif
#ifdef REUSED_TOKEN             /* a client has one token for all its attempts */
#define SAME(j, k) (CLIENT(j) == CLIENT(k))
#else
#define SAME(j, k) ((j) == (k))
#endif
#if defined(BLIND_ACQUIRE)      /* SET without NX */
#define GRANTS(n, k) true
#elif defined(UNTIMED)          /* whatever key there is ends just before */
#define GRANTS(n, k) true
#else
#define GRANTS(n, k) (holder[n] == NOBODY || HOLDS(n, k))
#endif
#ifdef BLIND_RENEWAL            /* PEXPIRE without comparing the token */
#define RENEWS(n, k) (holder[n] != NOBODY)
#else
#define RENEWS(n, k) HOLDS(n, k)
#endif
#ifdef BLIND_RELEASE            /* DEL without comparing the token */
#define RELEASES(n, k) (holder[n] != NOBODY)
#else
#define RELEASES(n, k) HOLDS(n, k)
#endif
#if defined(BLIND_CONFIRM)      /* the second round does not compare the token */
#define CONFIRMS(n, k) (counter[n] <= number[k])
#elif defined(LAX_CONFIRM)      /* a node that has given the claim more than the number confirms it, too */
#define CONFIRMS(n, k) HOLDS(n, k)
#else
/* The library's nodes say no to more: to a number that they have returned to somebody else. */
#define CONFIRMS(n, k) (HOLDS(n, k) && counter[n] <= number[k])
#endif
#ifdef NO_CONFIRM               /* the largest counter is handed out without a second round */
#define SETTLED(k) true
#else
#define SETTLED(k) (agreed[k] >= QUORUM(k))
#endif

#ifndef NODES
#define NODES     3
#endif
#define EVERY     (BIT(NODES) - 1) /* node */
#ifdef FENCING
#define CLAIMS    3
#else
#define CLAIMS    4
#endif
#define NOBODY    CLAIMS
#define CLIENT(k) ((k) / 2) /* 0 and 1 are A's first and second attempt, 2 and 3 are B's */
#define FIRST(k)  ((k) % 2 == 0)
#define NAME(k)   65 + CLIENT(k), 1 + (k) % 2

#define BIT(n)      (1 << (n))
#define IN(set, n)  (((set) >> (n)) & 1)
#define COUNT(set)  (IN(set, 0) + IN(set, 1) + IN(set, 2) + IN(set, 3) + IN(set, 4))
#define HOLDS(n, k) (holder[n] != NOBODY && SAME(holder[n], k))
#ifdef GUARD
#define ABSTAINS(n) (forgot[n] != NOBODY)
#else
#define ABSTAINS(n) false
#endif

mtype = { IDLE, ASKING, CONFIRMING, HELD, ENDED };

/* On the nodes. */
byte holder[NODES] = NOBODY;  /* the claim that the key belongs to */
#ifdef FENCING
byte counter[NODES];
#define LEASE(n) 0
#else
bit lease[NODES];             /* the key's TTL began with the claim's acquire (0) or its renewal (1) */
#define LEASE(n) lease[n]
#endif
#ifdef GUARD
byte forgot[NODES] = NOBODY;  /* the lease that the node abstains for */
bit forgotLease[NODES];
#endif

/* Of the claims. A claim is what one attempt may have put on the nodes. */
mtype phase[CLAIMS] = IDLE;
byte acquires[CLAIMS];        /* the nodes that may still execute the acquire */
#ifdef FENCING
byte granted[CLAIMS];         /* how many have granted, as far as the client knows */
byte proposal[CLAIMS];
byte number[CLAIMS];          /* the largest counter that came with a vote */
byte agreed[CLAIMS];          /* how many votes came with that counter */
byte confirms[CLAIMS];        /* the nodes that may still execute the confirm */
byte confirmed[CLAIMS];       /* how many have, as far as the client knows */
#else
byte votes[CLAIMS];           /* the nodes that have granted, later those that have renewed */
bit renewing[CLAIMS];         /* a renewal has been sent */
bit extended[CLAIMS];         /* a quorum has renewed: the deadline is that of the renewal */
byte passed[CLAIMS];          /* deadlines that have passed, of those that did not end the claim */
#endif

/* What only the judge knows. */
byte i;                       /* always 0 between two steps */
#ifdef FENCING
byte largest;                 /* of all numbers that were handed out */
byte before[CLAIMS];          /* largest, when the attempt began */
short given;                  /* the set of all numbers that were handed out */
#else
bit overtaken[CLAIMS];        /* somebody else has been given the lock since this claim was */
#endif

/*
 * A client: attempt, fence, confirm, Renew and Release in package redlock. What
 * is not read any more is cleared, so that there are fewer states.
 */

inline clear(k) {
#ifdef FENCING
	granted[k] = 0;
	agreed[k] = 0;
	confirmed[k] = 0;
	before[k] = 0;
	number[k] = (confirms[k] -> number[k] : 0);
	proposal[k] = (acquires[k] -> proposal[k] : 0)
#else
	votes[k] = 0
#endif
}

#define ACTIVE(k) (phase[k] != IDLE && phase[k] != ENDED)

inline begin(k, p) {
	d_step {
		phase[k] == IDLE && (FIRST(k) || phase[k - 1] == ENDED) ->
		phase[k] = ASKING;
		acquires[k] = LISTED(k);
#ifdef FENCING
		proposal[k] = p;
		before[k] = largest;
		printf("%c%d asks the nodes to acquire, proposing %d\n", NAME(k), p)
#else
		printf("%c%d asks the nodes to acquire\n", NAME(k))
#endif
	}
}

/*
 * The caller gives up, or releases; or the deadline passes. A client looks at
 * its clock before it hands out a lock or counts a renewal, so from then on the
 * claim is over, even if the client is asleep and does not know.
 */
inline finish(k) {
	d_step {
		ACTIVE(k) ->
		clear(k);
#ifndef FENCING
		acquires[k] = 0;
		renewing[k] = 0;
		extended[k] = 0;
		passed[k] = 0;
		overtaken[k] = 0;
#endif
		phase[k] = ENDED;
		printf("%c%d is over\n", NAME(k))
	}
}

#ifdef FENCING
/* handOut judges the lock that claim k has won. */
inline handOut(k) {
	printf("%c%d HOLDS the lock, number %d\n", NAME(k), number[k]);
#ifdef UNTIMED
	/* Larger than all that had been handed out when the attempt began, and nobody else's. */
	assert(number[k] > before[k]);
	assert(!(given & BIT(number[k])));
	phase[k] = ENDED; /* without time, that it is held means nothing to anybody */
#else
	assert(number[k] > largest);
	phase[k] = HELD;
#endif
	given = given | BIT(number[k]);
	largest = (number[k] > largest -> number[k] : largest);
	clear(k)
}

inline win(k) {
	d_step {
		phase[k] == ASKING && granted[k] >= QUORUM(k) && SETTLED(k) ->
		handOut(k)
	}
}

inline askToConfirm(k) {
	d_step {
		phase[k] == ASKING && granted[k] >= QUORUM(k) && !SETTLED(k) ->
		phase[k] = CONFIRMING;
		confirms[k] = LISTED(k);
		granted[k] = 0;
		agreed[k] = 0;
		printf("%c%d asks the nodes to confirm %d\n", NAME(k), number[k])
	}
}

inline winConfirmed(k) {
	d_step {
		phase[k] == CONFIRMING && confirmed[k] >= QUORUM(k) ->
		handOut(k)
	}
}

#else
/* judge looks at who holds the lock when claim k is given it, or gets more of it. */
inline judge(k) {
	for (i : 0 .. CLAIMS - 1) {
		assert(i == k || !VALID(i)); /* mutual exclusion */
		overtaken[i] = overtaken[i] || (i != k && phase[i] == HELD)
	}
	i = 0
}

inline win(k) {
	d_step {
		phase[k] == ASKING && COUNT(votes[k]) >= QUORUM(k) ->
		printf("%c%d HOLDS the lock\n", NAME(k));
		judge(k);
		clear(k);
		phase[k] = HELD
	}
}

inline askToRenew(k) {
	d_step {
		phase[k] == HELD && !renewing[k] ->
		printf("%c%d asks the nodes to renew\n", NAME(k));
		renewing[k] = 1
	}
}

inline extend(k) {
	d_step {
		phase[k] == HELD && !extended[k] && passed[k] < 2 && COUNT(votes[k]) >= QUORUM(k) ->
		printf("%c%d has RENEWED the lock\n", NAME(k));
		assert(!overtaken[k]); /* nobody had it meanwhile */
		judge(k);
		clear(k);
		extended[k] = 1
	}
}

/* A deadline passes that does not end the claim. */
inline pass(k) {
	d_step {
		ACTIVE(k) && passed[k] < 1 + renewing[k] && OUTLIVES(k) ->
		printf("a deadline of %c%d passes\n", NAME(k));
		passed[k]++
	}
}
#endif

active [2] proctype Client() {
	byte k = _pid * 2;
end:	do
#ifdef FENCING
	:: begin(k, 1)
	:: begin(k, 2)
	:: askToConfirm(k)
	:: winConfirmed(k)
#else
	:: begin(k, 0)
	:: askToRenew(k)
	:: extend(k)
	:: pass(k)
#endif
	:: win(k)
	:: finish(k)
	:: d_step { phase[k] == ENDED && FIRST(k) && k + 1 < CLAIMS -> k++ }
	od
}

/*
 * A node: the scripts of internal/scripts, expiry, and restarts. A command that
 * is refused does nothing.
 */

#if defined(FENCING) && !defined(SHORTEST)
/*
 * Nodes are alike, so they are kept in an order, that states which differ in it
 * only are one. What people call them is hidden from the search, a digit each.
 */
hidden short names = 210;
hidden byte t;
#define DIGIT(n) (n == 0 -> 1 : (n == 1 -> 10 : 100))
#define WHO(n) ((names / DIGIT(n)) % 10)
#define RANK(n) ((counter[n] << 8) | (holder[n] << 6) \
	| (IN(acquires[0], n) << 5) | (IN(acquires[1], n) << 4) | (IN(acquires[2], n) << 3) \
	| (IN(confirms[0], n) << 2) | (IN(confirms[1], n) << 1) | IN(confirms[2], n))
#define SWAPPED(set, a, b) (IN(set, a) == IN(set, b) -> set : set ^ (BIT(a) | BIT(b)))

inline swapUnlessRanked(a, b) {
	if
	:: RANK(a) < RANK(b) ->
		t = counter[a]; counter[a] = counter[b]; counter[b] = t;
		t = holder[a]; holder[a] = holder[b]; holder[b] = t;
		names = names + (WHO(b) - WHO(a)) * (DIGIT(a) - DIGIT(b));
		for (i : 0 .. CLAIMS - 1) {
			acquires[i] = SWAPPED(acquires[i], a, b);
			confirms[i] = SWAPPED(confirms[i], a, b)
		}
		i = 0
	:: else
	fi
}

inline settle() {
	swapUnlessRanked(0, 1);
	swapUnlessRanked(1, 2);
	swapUnlessRanked(0, 1)
}
#else
#define settle() skip
#define WHO(n) n
#endif

inline forget(n) {
#ifndef FENCING
	lease[n] = 0;
#endif
	holder[n] = NOBODY
}

#ifdef FENCING
#define MAY_ACQUIRE(n, k) ((acquires[k] & BIT(n)) && GRANTS(n, k))
#define MAY_CONFIRM(n, k) ((confirms[k] & BIT(n)) && CONFIRMS(n, k))

inline acquire(n, k) {
	acquires[k] = acquires[k] & ~BIT(n);
	counter[n] = (counter[n] < proposal[k] -> proposal[k] : counter[n] + 1);
	holder[n] = k
}

inline grant(n, k) {
	d_step {
		phase[k] == ASKING && MAY_ACQUIRE(n, k) ->
		acquire(n, k);
		granted[k]++;
		if
		:: counter[n] > number[k]  -> number[k] = counter[n]; agreed[k] = 1
		:: counter[n] == number[k] -> agreed[k]++
		:: else
		fi;
		printf("  node %d grants %c%d, counter %d\n", WHO(n), NAME(k), counter[n]);
		settle()
	}
}

inline grantUnheard(n, k) {
	d_step {
		MAY_ACQUIRE(n, k) ->
		acquire(n, k);
		printf("  node %d grants %c%d, counter %d, which is not heard\n", WHO(n), NAME(k), counter[n]);
		settle()
	}
}

inline raise(n, k) {
	confirms[k] = confirms[k] & ~BIT(n);
	counter[n] = (counter[n] < number[k] -> number[k] : counter[n])
}

inline confirm(n, k) {
	d_step {
		phase[k] == CONFIRMING && MAY_CONFIRM(n, k) ->
		raise(n, k);
		confirmed[k]++;
		printf("  node %d confirms %d for %c%d\n", WHO(n), number[k], NAME(k));
		settle()
	}
}

inline confirmUnheard(n, k) {
	d_step {
		MAY_CONFIRM(n, k) ->
		raise(n, k);
		printf("  node %d confirms %d for %c%d, which is not heard\n", WHO(n), number[k], NAME(k));
		settle()
	}
}

inline loseCounter(n) {
	d_step {
		counter[n] ->
		printf("  node %d loses its counter\n", WHO(n));
		counter[n] = 0;
		settle()
	}
}

#else
/*
 * No reply is lost here: whatever a client does with a vote less it may also do
 * with it. An acquire that finds its own key does nothing: a TTL is never
 * shortened.
 */

inline grant(n, k) {
	d_step {
		((acquires[k] & BIT(n)) || phase[k] == ENDED) && GRANTS(n, k) && !ABSTAINS(n) && holder[n] != k ->
		acquires[k] = acquires[k] & ~BIT(n);
		lease[n] = 0;
		holder[n] = k;
		votes[k] = (phase[k] == ASKING -> votes[k] | BIT(n) : votes[k]);
		printf("  node %d grants %c%d\n", WHO(n), NAME(k))
	}
}

inline renew(n, k) {
	d_step {
		renewing[k] && RENEWS(n, k) && (!lease[n] || (!extended[k] && !(votes[k] & BIT(n)))) ->
		lease[n] = 1;
		votes[k] = (extended[k] -> 0 : votes[k] | BIT(n));
		printf("  node %d renews %c%d\n", WHO(n), NAME(k))
	}
}

inline refill(n, k) {
	d_step {
		extended[k] && holder[n] == NOBODY && !ABSTAINS(n) ->
		holder[n] = k;
		lease[n] = 1;
		printf("  node %d is refilled for %c%d\n", WHO(n), NAME(k))
	}
}

#ifdef GUARD
/* One lease is enough to remember: a node that abstains grants no other. */
inline abstain(n) {
	forgotLease[n] = (forgot[n] == NOBODY -> lease[n] : forgotLease[n]);
	forgot[n] = (forgot[n] == NOBODY -> holder[n] : forgot[n])
}
#else
#define abstain(n) skip
#endif

inline restart(n) {
	d_step {
		holder[n] != NOBODY ->
		printf("  node %d restarts, without the key of %c%d\n", WHO(n), NAME(holder[n]));
		abstain(n);
		forget(n)
	}
}

inline restartOlder(n) {
	d_step {
		lease[n] ->
		printf("  node %d restarts, without the renewal of %c%d\n", WHO(n), NAME(holder[n]));
		abstain(n);
		lease[n] = 0
	}
}

inline endGuard(n) {
	d_step {
		forgot[n] != NOBODY && FORGETTABLE(forgot[n], forgotLease[n]) ->
		printf("  node %d may grant again\n", WHO(n));
		forgot[n] = NOBODY;
		forgotLease[n] = 0
	}
}
#endif

/* Undoing a claim that is over. A node may be told more than once. */
inline release(n, k) {
	d_step {
		phase[k] == ENDED && RELEASES(n, k) ->
		printf("  node %d releases %c%d, and held %c%d\n", WHO(n), NAME(k), NAME(holder[n]));
		forget(n);
		settle()
	}
}

inline expire(n) {
	d_step {
		holder[n] != NOBODY && OVER(holder[n], LEASE(n)) ->
		printf("  node %d lets the key of %c%d expire\n", WHO(n), NAME(holder[n]));
		forget(n);
		settle()
	}
}

#if CLAIMS == 4
#define EACH_CLAIM(step) :: step(n, 0) :: step(n, 1) :: step(n, 2) :: step(n, 3)
#else
#define EACH_CLAIM(step) :: step(n, 0) :: step(n, 1) :: step(n, 2)
#endif

active [NODES] proctype Node() {
	byte n = _pid - 2;
end:	do
	EACH_CLAIM(grant)
#ifdef FENCING
	EACH_CLAIM(grantUnheard)
	EACH_CLAIM(confirm)
	EACH_CLAIM(confirmUnheard)
#ifdef LOSES_COUNTERS
	:: loseCounter(n)
#endif
#else
	EACH_CLAIM(renew)
	EACH_CLAIM(refill)
#ifdef FORGETS
	:: restart(n)
	:: restartOlder(n)
#endif
#ifdef GUARD
	:: endGuard(n)
#endif
#endif
#ifndef UNTIMED
	EACH_CLAIM(release)
	:: expire(n)
#endif
	od
}
