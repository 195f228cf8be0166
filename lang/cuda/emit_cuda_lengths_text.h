// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text generator of emit_cuda_lengths.h.
#include <algorithm>

#include "lang/cuda/emit_cuda_all.h"

namespace tithe::lang {

class LengthsText : AllText {
 public:
  using AllText::AllText;
  std::string run();

 private:
  template <typename Of>
  void arrays(const Of& of) const {
    each([&](std::size_t k, const Item& item) {
      if (item.array) of(k, item);
    });
  }
  // The table with the byte counts of groups of blocks; nullptr: none.
  const Item* table() const {
    const auto found = std::find_if(program_.items.begin(), program_.items.end(),
                                    [](const Item& item) { return item.coding == Coding::kBytes; });
    return found == program_.items.end() ? nullptr : &*found;
  }
  std::size_t table_at() const {
    const Item* const t = table();
    return t == nullptr ? 0 : static_cast<std::size_t>(t - program_.items.data());
  }

  void shared();
  void places();

  // ---- Encode
  void send();
  void own_bits(std::size_t k, const Item& item);
  void scan_own(std::size_t k, const Item& item);
  void offsets();
  void write();

  // ---- Decode
  std::string read_from() const;
  void read();
  void read_places(std::size_t k, const Item& item);
  void receive_numbers(std::size_t below);
  void receive_codes(std::size_t below);
  void find_widths(std::size_t k, const Item& item);
  void read_codes(std::size_t k, const Item& item);
  void receive();

  // ---- Kernels
  void kernels();
  void host();

  std::vector<std::string> reading_;  // phases that locate the codes of a block
};

}  // namespace tithe::lang
