package jwt_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/jwt"
)

// Users are counted by sub of their token. A token that is not right is no identity.
func ExampleNew() {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // stands for the issuer
	keys, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "2026-11"}}})

	verifier, err := jwt.New(jwt.Config{Keys: keys, Algorithms: []string{"EdDSA"}, Leeway: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	resolver, err := identity.NewResolver(identity.Config{
		Verifier: verifier,
		Sources:  map[string]string{"user": "claim:sub"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, token := range []string{issue(private), "a.b.c"} {
		attrs := map[string]string{}
		facts := identity.Facts{Peer: "203.0.113.9:40001", Header: map[string][]string{"Authorization": {"Bearer " + token}}}
		err := resolver.Resolve(&facts, attrs)
		fmt.Printf("%q %q %v\n", attrs["user"], attrs["ip"], err)
	}
	// Output:
	// "u_17" "203.0.113.9" <nil>
	// "" "203.0.113.9" <nil>
}

func issue(key ed25519.PrivateKey) string {
	opts := (&jose.SignerOptions{}).WithHeader("kid", "2026-11")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, opts)
	if err != nil {
		return ""
	}
	object, err := signer.Sign(fmt.Appendf(nil, `{"sub":"u_17","exp":%d}`, time.Now().Add(time.Minute).Unix()))
	if err != nil {
		return ""
	}
	token, _ := object.CompactSerialize()
	return token
}
