// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program's items in generated text: their addresses (o0, t0), writing, checking, and the receiver's view of them.
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

  // Calls of(k, item) for the items of a block, or for the items that are sent once.
  template <typename Of>
  void each(bool once, const Of& of) const {
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (program_.items[k].once == once) of(k, program_.items[k]);
  }

  // Declares the address of each item of a block: o0, o1, ...; `next` is the end.
  void places(const char* type);
  // Declares the address of each table from `from` on: t0, t1, ...; returns the end.
  std::string tables(const char* type, std::string from);
  // The address of a number.
  std::string place(std::size_t k, const Item& item) const;

  // Int fields: if runs of sixteen values coincide with rows of fields, they are read and written in place; otherwise
  // they go through an array.
  bool in_rows() const { return program_.adds() && program_.block % 16 == 0; }
  bool in_fields() const { return program_.adds() && !in_rows(); }

  // Items that are sent once: written to `block`, or read from it and checked; then their receiver's view is defined.
  void write_once();
  void check_once();
  void read_once(const std::string& from);
  // Sent items, from the receiver's view.
  void receive_number(const Item& item, const std::string& bits);
  void receive_values(const Item& item);
  void read_numbers(const Pass& of);
  // `in_reader`: words of 32 values are available.
  void unpack(std::size_t k, const Item& item, bool in_reader = false);
  void pack(std::size_t k, const Item& item);
  // Checks that a number, whose bits are in `bits`, is finite, equals the known value, and fits its type.
  void check_number(const Item& item, const std::string& bits);

  // The `where` of an item: per call, or per block.
  bool of_all(const Item& item) const { return item.where != kNone && node(item.where).stage == Stage::kAll; }
  bool of_block(const Item& item) const { return item.where != kNone && !of_all(item) && !of_values(item); }
  // True if the ranges prove the condition for everything that encode can send, so it needs no check.
  bool always(int k) const;
  void condition_masks(bool sending = false);
  void scan_conditions(bool sending = false);

  // Conditions that depend on flags only are checked for 64 values at a time.
  bool checks_bits() const;
  void check_words();
  // If the only array has codes of 2 or 4 bits and the conditions depend on these and the block's numbers alone, they
  // are evaluated once per possible code and looked up. kNoTable: not possible.
  std::size_t checked_halves() const;
  void check_halves(std::size_t k);

  // Defines nodes of the receiver's view in encode, where the bits of some items exist before they are packed
  // together.
  void define_read(const Nodes& nodes);

  // If the decoded value depends only on a code of at most 4 bits and the block's numbers, it is computed once per
  // code and block, and looked up. kNoTable: not possible.
  std::size_t looked_up_item() const;
  void look_up_table(std::size_t k);
  std::string looked_up(std::size_t k, const std::string& code) const;
  // Likewise for one or two flags per value, if there are no other arrays. Empty: not possible.
  std::vector<std::size_t> looked_up_flags() const;
  void look_up_flags(const std::vector<std::size_t>& items);
  bool all_computed(const Nodes& work) const;  // only items and numbers, through operators

 private:
  std::string constant_bits(std::size_t k, const Item& item) const;
  // In encode, the receiver's view of an item is the sent node.
  int sent(int k) const;
  bool implies(int a, int b) const;
  // (node << by) & mask in u32, and the same in terms of the node's operands.
  struct Bits {
    int node;
    unsigned by;
    std::uint32_t mask;
  };
  Bits before_packing(Bits of) const;
  std::uint32_t bits_of(int k) const;  // the bits that may be set
  std::string codes_in_order(const Item& item) const;
  bool follows_from_arrays() const;  // the decoded value depends on arrays alone
  void table_of(const std::function<void()>& inputs);
};

}  // namespace tithe::lang
