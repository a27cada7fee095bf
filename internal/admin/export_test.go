package admin

import "time"

// SetReadTimeout sets how long a request may take to arrive, before Serve.
func (a *API) SetReadTimeout(d time.Duration) { a.read = d }
