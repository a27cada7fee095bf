package kept

// Decode is decode, for tests that feed it garbage.
var Decode = decode
