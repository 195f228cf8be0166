// SPDX-License-Identifier: Apache-2.0
#pragma once
// Serializes numbers and byte strings, little-endian, into a growing buffer, and reads them from untrusted bytes.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "tithe/byte_view.h"

namespace tithe {

class ArchiveWriter {
 public:
  template <typename T>
  void number(T v) {
    out_.resize(out_.size() + sizeof v);
    wire::put(out_.data() + out_.size() - sizeof v, v);
  }
  void raw(ByteView v) {
    const std::size_t at = out_.size();
    out_.resize(at + v.size());
    if (!v.empty()) std::memcpy(out_.data() + at, v.data(), v.size());
  }
  void text(std::string_view s) {  // u64 length, then bytes
    number(std::uint64_t{s.size()});
    raw({reinterpret_cast<const std::uint8_t*>(s.data()), s.size()});
  }
  ByteView bytes() const { return out_; }
  std::vector<std::uint8_t> take() { return std::move(out_); }

 private:
  std::vector<std::uint8_t> out_;
};

// After a read beyond the end, all reads return zeros and whole() returns false.
class ArchiveReader {
 public:
  explicit ArchiveReader(ByteView in) : in_(in) {}
  template <typename T>
  T number() {
    const ByteView b = raw(1, sizeof(T));
    return b.empty() ? T{} : wire::get<T>(b.data());
  }
  // Reads `count` items of `each` bytes. Never more than there are, whatever the count.
  ByteView raw(std::uint64_t count, std::size_t each = 1) {
    if (!whole_ || count > in_.size() / each) {
      whole_ = false;
      return {};
    }
    const ByteView b = in_.first(count * each);
    in_ = in_.subspan(count * each);
    return b;
  }
  std::string text() {
    const ByteView b = raw(number<std::uint64_t>());
    return {b.begin(), b.end()};
  }
  bool whole() const { return whole_; }
  bool done() const { return whole_ && in_.empty(); }

 private:
  ByteView in_;
  bool whole_ = true;
};

}  // namespace tithe
