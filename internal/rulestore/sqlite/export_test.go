package sqlite

// Name is what the driver calls a file by.
var Name = name
