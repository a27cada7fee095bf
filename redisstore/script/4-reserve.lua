-- Reservations: what has been set aside in a bucket until it is known what it came
-- to. A list of {id, ends, cost, start}: cost 0 is the mark of one that is settled,
-- start the window it counts in. Lists are shared between states: they are replaced,
-- never changed in place.
local function reserves()
  local max = math.max
  local PLACES, SIZE = 64, 32

  -- read takes the list off a stored bucket, nil if that is none.
  local function read(s, pos)
    local count = s:byte(pos)
    if not count or count < 1 or count > PLACES or #s ~= pos + SIZE * count then return nil end
    local list = {}
    for i = 1, count do
      local at = pos + 1 + SIZE * (i - 1)
      local r = { id = sub(s, at, at + 15) }
      r.ends, r.cost, r.start = unpack('<I6I4I6', s, at + 16)
      list[i] = r
    end
    return list
  end

  -- stored adds a list to what is kept of a bucket, whose kind then is another, and
  -- to how long.
  local function stored(state, life, list)
    local parts = { sub(state, 1, 22), pack('<B', state:byte(23) + 16), sub(state, 24), pack('<B', #list) }
    for _, r in ipairs(list) do
      parts[#parts + 1] = r.id .. pack('<I6I4I6', r.ends, r.cost, r.start)
      life = max(life, r.ends - now)
    end
    return table.concat(parts), life
  end

  local function find(st, id)
    for i, r in ipairs(st.held or {}) do
      if r.id == id then return i, r end
    end
    return nil
  end

  -- replace returns the list with another entry at i, or none.
  local function replace(st, i, entry)
    local list = {}
    for j, r in ipairs(st.held) do
      if j ~= i then list[#list + 1] = r elseif entry then list[#list + 1] = entry end
    end
    return list[1] and list or nil
  end

  -- returns says whether what r holds can be given back: to a window only while it
  -- is the one that r counts in.
  local function returns(st, r) return st.kind == 1 or r.start == st.start end

  -- release gives back what ended open, and drops it with the marks that ended. What
  -- ended after its window stays counted.
  local function release(st, give_back)
    local kept, ended = {}, false
    for _, r in ipairs(st.held) do
      if r.ends > now then
        kept[#kept + 1] = r
      else
        ended = true
        if r.cost > 0 and (st.kind == 1 or (returns(st, r) and r.ends < st.stop)) then give_back(st, r.cost) end
      end
    end
    if ended then st.held = kept[1] and kept or nil end
  end

  -- wait is how long until there is a place: 0 with one free, or one of a mark.
  local function wait(st)
    local list = st.held or {}
    if #list < PLACES then return 0 end
    local first = list[1].ends
    for _, r in ipairs(list) do
      if r.cost == 0 then return 0 end
      if r.ends < first then first = r.ends end
    end
    return first - now
  end

  -- enter adds one; of a full list the mark that ends first makes room.
  local function enter(st, id, ttl, cost)
    local list, oldest = st.held or {}, nil
    if #list >= PLACES then
      for i, r in ipairs(list) do
        if r.cost == 0 and (not oldest or r.ends < list[oldest].ends) then oldest = i end
      end
      if not oldest then return end
    end
    local copy = {}
    for i, r in ipairs(list) do
      if i ~= oldest then copy[#copy + 1] = r end
    end
    copy[#copy + 1] = { id = id, ends = now + ttl, cost = cost, start = st.start or 0 }
    if cost == 0 then copy[#copy].start = 0 end
    st.held = copy
  end

  local function mark(st, i, ttl)
    local r = st.held[i]
    st.held = replace(st, i, { id = r.id, ends = max(r.ends, now + ttl), cost = 0, start = 0 })
  end

  return { read = read, stored = stored, find = find, replace = replace, returns = returns, release = release, wait = wait, enter = enter, mark = mark }
end
