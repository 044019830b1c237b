package redlock

// What the fuzz tests of tokens look at.
var (
	NewToken   = newToken
	OwnerOf    = ownerOf
	CheckOwner = checkOwner
)
