package block

// known maps the codes of a source's dictionary to column numbers of the block; noCol where they have not met yet.
type known struct {
	dict uint32
	ids  []uint16
}

// knownMax is how many dictionaries a block remembers: a merge of more inputs compares column bytes now and then.
const knownMax = 16

func (b *Builder) dict(d uint32) []uint16 {
	if k := &b.known[d%knownMax]; k.dict == d {
		return k.ids
	}
	return nil
}

// learn notes that code of dictionary d is column id, and returns the dictionary's map.
func (b *Builder) learn(d uint32, code, id uint16) []uint16 {
	k := &b.known[d%knownMax]
	if k.dict != d {
		k.dict, k.ids = d, k.ids[:0]
	}
	for len(k.ids) <= int(code) {
		k.ids = append(k.ids, noCol)
	}
	k.ids[code] = id
	return k.ids
}
