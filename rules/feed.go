package rules

import "context"

// Feed is a [Source] that can also say what changed since it was last asked. A Watcher
// whose source is one asks it by Next and never by Load.
type Feed interface {
	Source
	// Next returns what is to be done to what it has returned so far, which counts as
	// taken. After an error everything is as before. Like Load it is not called by two
	// goroutines at once, and returns when ctx ends.
	Next(ctx context.Context) (Update, error)
}

// Update is what a [Feed] answers. Without Set and Delta nothing changed.
type Update struct {
	// Set is everything, to begin with; Delta what changed.
	Set   *Set
	Delta *Delta
	// Problems are those of all that cannot be read, whenever it changed.
	Problems Problems
	Version  Version
}

// ask asks the source, by changes where it can tell them.
func (w *Watcher) ask(ctx context.Context) (Update, error) {
	if feed, ok := w.cfg.Source.(Feed); ok {
		return feed.Next(ctx)
	}
	set, problems, version, err := w.cfg.Source.Load(ctx)
	if err != nil || version == w.version && version != (Version{}) {
		return Update{}, err
	}
	return Update{Set: &set, Problems: problems, Version: version}, nil
}
