package redisstore

import "strings"

// slots is how many a cluster has.
const slots = 16_384

// Slot returns the hash slot of a key, by which a cluster places it.
func Slot(key string) int {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if n := strings.IndexByte(key[i+1:], '}'); n > 0 {
			key = key[i+1 : i+1+n]
		}
	}
	return int(crc16(key) % slots)
}

// crc16 is CRC-16/XMODEM, polynomial 0x1021 from 0, as Redis Cluster uses it: half
// a byte at a time by the remainders of its sixteen values.
func crc16(s string) uint16 {
	remainders := [16]uint16{
		0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
		0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
	}
	var crc uint16
	for i := range len(s) {
		crc = crc<<4 ^ remainders[crc>>12^uint16(s[i]>>4)]
		crc = crc<<4 ^ remainders[crc>>12^uint16(s[i]&15)]
	}
	return crc
}
