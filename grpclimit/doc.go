// Package grpclimit puts a limiter in front of the methods of a gRPC server:
//
//	config := grpclimit.Config{Limiter: limiter, Domain: "public-api"}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(config)),
//		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(config)),
//	)
//
// A call goes one way:
//
//	skip? ─► who asks (metadata, peer, certificate) ─► route = full method
//	     ─► your attributes ─► Decide
//	     ─► allowed: limit headers as metadata, handler
//	     ─► denied: RESOURCE_EXHAUSTED with RetryInfo, or your OnDeny
//	     ─► no verdict: UNAVAILABLE and others, or your OnError
//
// A stream is counted once, when it opens. There is no goroutine and no lock of its
// own; interceptors may be used by any number of goroutines.
package grpclimit
