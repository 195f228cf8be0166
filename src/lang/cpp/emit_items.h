// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program's items in generated text: where each begins (o0, t0), how it is written, and what a receiver makes of it.
#include <functional>
#include <string>
#include <vector>

#include "lang/text/emit_passes.h"

namespace tithe::lang {

class ItemText : public PassText {
 public:
  using PassText::PassText;

 protected:
  static constexpr std::size_t kNoTable = ~std::size_t{0};

  // Calls of(k, item) for the items of a block, or for those that are sent once.
  template <typename Of>
  void each(bool once, const Of& of) const {
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (program_.items[k].once == once) of(k, program_.items[k]);
  }

  // Where each item of a block begins: o0, o1, ... `next` is behind the last.
  void places(const char* type);
  // Where each table begins, from `from` on: t0, t1, ...; behind the last of them.
  std::string tables(const char* type, std::string from);
  // Where a number stands.
  std::string place(std::size_t k, const Item& item) const;

  // Int fields: where runs of sixteen are rows of theirs, they are written and read in place; else by way of an array.
  bool in_rows() const { return program_.adds() && program_.block % 16 == 0; }
  bool in_fields() const { return program_.adds() && !in_rows(); }

  // Items that are sent once: written to `block`, or read from there and checked; what a receiver makes of them.
  void write_once();
  void check_once();
  void read_once(const std::string& from);
  // Sent items, as the receiver sees them.
  void receive_number(const Item& item, const std::string& bits);
  void receive_values(const Item& item);
  void read_numbers(const Pass& of);
  // `in_reader`: where words of 32 values are at hand.
  void unpack(std::size_t k, const Item& item, bool in_reader = false);
  void pack(std::size_t k, const Item& item);
  // A number's bits in `bits`: whether they are finite, known, and no more than there is room for.
  void check_number(const Item& item, const std::string& bits);

  // `where` of what is sent once; of a block's numbers, or of what is known before them; or of each value.
  bool of_all(const Item& item) const { return item.where != kNone && node(item.where).stage == Stage::kAll; }
  bool of_values(const Item& item) const {
    return item.where != kNone && node(item.where).stage == Stage::kValue;
  }
  bool of_block(const Item& item) const { return item.where != kNone && !of_all(item) && !of_values(item); }
  // True: the condition holds for all that encode sends, so it is not looked at.
  bool always(int k) const;
  void condition_masks(bool sending = false);
  void look_at_conditions(bool sending = false);

  // Conditions on nothing but flags: looked at for 64 values at a time.
  bool checks_bits() const;
  void check_words();
  // The only array, of codes of 2 or 4 bits, where conditions follow from them and the block's numbers alone: found for
  // each half of a byte, and looked up. kNoTable: there is none.
  std::size_t checked_halves() const;
  void check_halves(std::size_t k);

  // Nodes of what is read, in encode: some bits of what was sent were there before they were packed together.
  void define_read(const Nodes& nodes);

  // A table of what decode makes of codes of at most 4 bits, where that follows from them and the block's numbers
  // alone: found once for a block, and looked up. kNoTable: it is computed of each value.
  std::size_t looked_up_item() const;
  void look_up_table(std::size_t k);
  std::string looked_up(std::size_t k, const std::string& code) const;
  // The same of one or two flags of each value, where there are no other arrays. Empty: it is computed.
  std::vector<std::size_t> looked_up_flags() const;
  void look_up_flags(const std::vector<std::size_t>& items);
  bool all_computed(const Nodes& work) const;  // of items and numbers, by operators

 private:
  std::string known_bits(std::size_t k, const Item& item) const;
  // In encode an item is what was sent.
  int sent(int k) const;
  bool implies(int a, int b) const;
  // (node << by) & mask of u32, and the same by what the node is made of.
  struct Bits {
    int node;
    unsigned by;
    std::uint32_t mask;
  };
  Bits before_packing(Bits of) const;
  std::uint32_t bits_of(int k) const;  // those that may be set
  std::string codes_in_order(const Item& item) const;
  bool follows_from_arrays() const;  // what decode makes of a value
  void table_of(const std::function<void()>& inputs);
  std::string sent_number(const Item& item, const std::string& bits) const;
};

}  // namespace tithe::lang
