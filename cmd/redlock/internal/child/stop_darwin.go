package child

type childInfoAlignment = int32
