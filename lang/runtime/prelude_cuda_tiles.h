// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated kernels (emit_cuda.h): tiles. A tile has up to kTile values: a block of the program,
// or a run of a long block. kGroup threads load it once, and each holds kOwn of its values in registers from phase to
// phase. If the tile is whole (it has kTile values), no position is compared with the end.
//
// Four threads hold 32 consecutive values. A thread has four consecutive values (a quad) in each row of 16. So a quad
// is one access of 16 bytes, a warp reads whole sectors, and one thread has both values that share a random word.

struct Tile {
  size_t b, first, len;  // the block, its first value, and its length
  size_t begin;          // the tile's first value in the block
  U values;              // of the tile
};
// The position in the tile of value k of a thread.
template <U kGroup>
DEV U own_value(U thread, U k) {
  return thread / 4 * 32 + thread % 4 * 4 + k / 8 * (8 * kGroup) + k / 4 % 2 * 16 + k % 4;
}

// ---- Several words at an address that is aligned to all of them move by one access
template <U kWords>
struct alignas(4 * kWords) Words {
  U of[kWords];
};
template <U kWords>
DEV void load_words(const void* from, U* to) {
  const Words<kWords> words = fetch(static_cast<const Words<kWords>*>(from));
  ALL for (U k = 0; k < kWords; ++k) to[k] = words.of[k];
}
template <U kWords>
DEV void store_words(void* to, const U* from) {
  Words<kWords> words;
  ALL for (U k = 0; k < kWords; ++k) words.of[k] = from[k];
  store(static_cast<Words<kWords>*>(to), words);
}

// ---- Numbers of 4 bytes, one per value: floats are moved as their bits. Behind the tile's end they are 0
template <bool kWhole, U kGroup, U kOwn>
DEV void load_own(const void* tile, U values, U thread, U (&to)[kOwn]) {
  const U* const from = static_cast<const U*>(tile);
  if (is_aligned<16>(from) && (kWhole || values % 4 == 0)) {
    ALL for (U k = 0; k < kOwn; k += 4) {
      const U at = own_value<kGroup>(thread, k);
      ALL for (U j = k; j < k + 4; ++j) to[j] = 0;
      if (kWhole || at < values) load_words<4>(from + at, to + k);
    }
  } else {
    ALL for (U k = 0; k < kOwn; ++k) {
      const U at = own_value<kGroup>(thread, k);
      to[k] = kWhole || at < values ? fetch(from + at) : 0;
    }
  }
}
template <bool kWhole, U kGroup, U kOwn>
DEV void store_own(void* tile, U values, U thread, const U (&from)[kOwn]) {
  U* const to = static_cast<U*>(tile);
  if (is_aligned<16>(to) && (kWhole || values % 4 == 0)) {
    ALL for (U k = 0; k < kOwn; k += 4) {
      const U at = own_value<kGroup>(thread, k);
      if (kWhole || at < values) store_words<4>(to + at, from + k);
    }
  } else {
    ALL for (U k = 0; k < kOwn; ++k) {
      const U at = own_value<kGroup>(thread, k);
      if (kWhole || at < values) store(to + at, from[k]);
    }
  }
}
template <bool kWhole, U kGroup, U kOwn>
DEV void store_bytes(uint8_t* to, U values, U thread, const U (&from)[kOwn]) {
  ALL for (U k = 0; k < kOwn; ++k) {
    const U at = own_value<kGroup>(thread, k);
    if (kWhole || at < values) store(to + at, uint8_t(from[k]));
  }
}
// Gradient plus residual.
template <bool kWhole, U kGroup, U kOwn>
DEV void take_own(const Call* call, const Tile& tile, U thread, F (&x)[kOwn]) {
  const size_t at = tile.first + tile.begin;
  const bool adds = call->residual != nullptr;
  U grad[kOwn], residual[kOwn] = {};
  load_own<kWhole, kGroup>(call->grad + at, tile.values, thread, grad);
  if (adds) load_own<kWhole, kGroup>(call->residual + at, tile.values, thread, residual);
  bool finite = true;
  ALL for (U k = 0; k < kOwn; ++k) {
    x[k] = adds ? add(float_(grad[k]), float_(residual[k])) : float_(grad[k]);
    finite = finite & is_finite(x[k]);
  }
  if (!finite) say(call, 0);
}
// Stores the unsent values. If `sent` contains a value that is not finite, the call has reported it.
template <bool kWhole, U kGroup, U kOwn>
DEV void leave_own(const Call* call, const Tile& tile, U thread, const F (&x)[kOwn], const F (&sent)[kOwn]) {
  U rest[kOwn];
  bool finite = true;
  ALL for (U k = 0; k < kOwn; ++k) {
    const F left = call->left == nullptr ? sent[k] : sub(x[k], sent[k]);
    finite = finite & is_finite(left);
    rest[k] = bits_(left);
  }
  if (!finite) say(call, 0);
  if (call->left != nullptr)
    store_own<kWhole, kGroup>(call->left + tile.first + tile.begin, tile.values, thread, rest);
}

// ---- Draws: a thread's values k and k + 4 are 16 apart, so one word serves both
DEV U draw_own(U (&word)[4], U k, uint64_t key, size_t at, int bits) {
  if (bits > 23) return draw(key, at, bits);
  if (k / 4 % 2 == 0) word[k % 4] = drawn((U(at) >> 5 << 4 | (U(at) & 15)) + U(key), key);
  const U upper = word[k % 4] >> (32 - bits);
  return k / 4 % 2 == 0 ? upper : (word[k % 4] ^ upper) & ((U(1) << bits) - 1);
}

// ---- Codes of kBits bits, the lowest bit first. A field holds the codes of consecutive values: of a quad, or of fewer
// values if a word cannot hold these
template <int kBits>
struct Field {
  enum : U { kCodes = kBits <= 8 ? 4 : kBits <= 16 ? 2 : 1, kField = kCodes * kBits, kQuad = 4 / kCodes };
};
template <int kBits, U kFields>
DEV void put_code(U (&field)[kFields], U k, U code) {
  field[k / Field<kBits>::kCodes] |= code << k % Field<kBits>::kCodes * kBits;
}
template <int kBits, U kFields>
DEV U code_of(const U (&field)[kFields], U k) {
  return field[k / Field<kBits>::kCodes] >> k % Field<kBits>::kCodes * kBits & (0xffffffffU >> (32 - kBits));
}
// Stores fields of 32 bits to an array of `bytes` bytes: the words of a quad by one access, if the address is aligned.
template <int kBits, bool kWhole, U kGroup, U kFields>
DEV void store_fields(uint8_t* to, size_t bytes, U thread, const U (&field)[kFields]) {
  enum : U { kCodes = Field<kBits>::kCodes, kQuad = Field<kBits>::kQuad, kBytes = 4 * kQuad };
  ALL for (U f = 0; f < kFields; f += kQuad) {
    const U at = own_value<kGroup>(thread, f * kCodes) / kCodes * 4;
    if (is_aligned<kBytes>(to) && (kWhole || at + kBytes <= bytes)) {
      store_words<kQuad>(to + at, field + f);
    } else {
      ALL for (U k = 0; k < kBytes; ++k) if (kWhole || at + k < bytes)
          store(to + at + k, uint8_t(field[f + k / 4] >> k % 4 * 8));
    }
  }
}
// Shorter fields are packed in shared memory, and then stored by words.
template <int kBits, U kGroup, U kFields, class T>
DEV void share_fields(T* shared, U thread, const U (&field)[kFields]) {
  enum : U { kCodes = Field<kBits>::kCodes };
  ALL for (U f = 0; f < kFields; ++f) shared[own_value<kGroup>(thread, f * kCodes) / kCodes] = T(field[f]);
}
template <int kBits, U kGroup, U kFields, class T>
DEV void pack_fields(const T (&field)[kFields], uint8_t* to, size_t bytes, U thread) {
  enum : U { kField = Field<kBits>::kField, kMaxFields = 31 / kField + 2 };  // fields that a word may touch
  for (U j = thread; 4 * j < bytes; j += kGroup) {
    const U first = 32 % kField == 0 ? j * (32 / kField) : 32 * j / kField;
    const U skipped = 32 % kField == 0 ? 0 : 32 * j - first * kField;
    U word = U(field[first]) >> skipped;
    ALL for (U f = 1; f < kMaxFields; ++f) {
      const U bit = f * kField - skipped;
      if (bit < 32 && first + f < kFields) word |= U(field[first + f]) << bit;
    }
    if (is_aligned<4>(to) && 4 * j + 4 <= bytes)
      store_words<1>(to + 4 * j, &word);
    else
      for (U k = 0; k < 4 && 4 * j + k < bytes; ++k) store(to + 4 * j + k, uint8_t(word >> 8 * k));
  }
}
// Loads a thread's fields. Bits behind the end of the array are 0.
template <int kBits, bool kWhole, U kGroup, U kFields>
DEV void load_fields(const uint8_t* from, size_t bytes, U thread, U (&field)[kFields]) {
  enum : U { kCodes = Field<kBits>::kCodes, kField = Field<kBits>::kField, kQuad = Field<kBits>::kQuad };
  ALL for (U f = 0; f < kFields; f += kQuad) {
    const U bit = own_value<kGroup>(thread, f * kCodes) * kBits;
    if (kField == 32 && is_aligned<4 * kQuad>(from) && (kWhole || bit / 8 + 4 * kQuad <= bytes)) {
      load_words<kQuad>(from + bit / 8, field + f);
      continue;
    }
    ALL for (U q = 0; q < kQuad; ++q) {
      const U at = (bit + q * kField) / 8, skipped = (bit + q * kField) % 8;
      uint64_t word = 0;
      if (kField == 16 && is_aligned<2>(from) && (kWhole || at + 2 <= bytes)) {
        word = fetch(reinterpret_cast<const uint16_t*>(from + at));
      } else {
        ALL for (U k = 0; 8 * k < kField + 7; ++k) if (8 * k < skipped + kField && (kWhole || at + k < bytes))
            word |= uint64_t(fetch(from + at + k)) << 8 * k;
      }
      field[f + q] = U(word >> skipped) & (0xffffffffU >> (32 - kField));
    }
  }
}
