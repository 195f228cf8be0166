// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text generator of emit_cuda_tiles.h.
#include <algorithm>

#include "lang/cuda/emit_cuda_text.h"

namespace tithe::lang {

class TilesText : CudaText {
 public:
  TilesText(const Checked& program, const Schedule& schedule) : CudaText(program, schedule) {
    in_tiles_ = true;
    longest_ = kMaxTile;
  }
  std::string run();

 private:
  static constexpr std::size_t kMaxTile = 2048;   // longer blocks are read once per pass
  static constexpr std::size_t kMaxPartials = 8;  // partial results that every thread combines for itself

  static unsigned codes_in_field(unsigned bits) { return bits <= 8 ? 4 : bits <= 16 ? 2 : 1; }
  static unsigned field_bits(const Item& item) { return item.bits * codes_in_field(item.bits); }
  // Codes of a field shorter than a word are packed in shared memory; trits and int fields have kernels of their own.
  static bool is_coded(const Item& item) { return item.array && item.coding == Coding::kCodes; }
  static bool is_packed(const Item& item) { return is_coded(item) && field_bits(item) != 32; }
  static std::string number_of_fields(const Item& item) {
    return item.bits > 16 ? "kOwn" : fmt::format("kOwn / {}", codes_in_field(item.bits));
  }
  bool trits() const {
    return std::any_of(program_.items.begin(), program_.items.end(),
                       [](const Item& item) { return item.coding == Coding::kTrits; });
  }
  bool finds_in_pieces() const { return is_long() && !schedule_.passes.empty(); }

  // ---- Tiles
  std::size_t own_values() const {
    return is_long() ? kRun / group() : 8 * ((block() + 8 * group() - 1) / (8 * group()));
  }
  void tile();
  void tile_numbers();
  void shared();
  // Opens a function of a tile in which the results of the first `found` passes are defined.
  void open_tile(const std::string& name, std::size_t found, const char* common = "Shared",
                 const char* own = "Own");
  // The loop over a thread's values x of a tile.
  void open_own(const Nodes& nodes);
  void close_own();
  void tiles_kernel(const char* name, const std::vector<std::string>& phases);

  // ---- Reductions of a block in one tile. Sums have sixteen lanes in the order of base/fold.h and read the values in
  // shared memory; other reductions start with the values in registers
  Nodes of_pass(std::size_t p, bool shaped) const {
    Nodes some;
    for (const int k : passes()[p].reduce)
      if (in_shape(k) == shaped) some.push_back(k);
    return some;
  }
  bool adds_up() const {
    return !is_long() &&
           std::any_of(passes().begin(), passes().end(), [&](const Pass& p) { return is_shaped(p); });
  }
  std::size_t partials() const { return group() > kMaxPartials ? group() / kLanes : group(); }
  bool found_by_all(std::size_t p) const {
    return !is_long() && of_pass(p, true).empty() && partials() <= kMaxPartials;
  }
  // The nodes among `nodes` that these reductions read.
  Nodes read_by(const Nodes& reduce, const Nodes& nodes) const;
  void find_in_tile(std::size_t p);
  void open_phase_of(const char* name, std::size_t p);
  void add_up(std::size_t p, const Nodes& shaped);

  // ---- Payloads
  // The addresses of tables and of the items of block b: t0, o1, ...
  void places(const char* type);
  std::string place(std::size_t k, const Item& item) const;
  // The bytes of an array from this tile on, and their number up to the end of the tile or of a padded array.
  std::string array_of(std::size_t k, const Item& item) const;
  void send();
  void send_values();
  // Generates the decoding kernel: out = base + decoded value, one payload per launch.
  void receive();
  // The bytes of a payload of n values, as payload_bytes (lang/front/passes.h) computes them.
  void bytes();
  std::size_t numbers_bytes() const;
  // The layout of the scratch, and its size.
  void scratch();
  // Generates the host functions: the scratch layout, and the launches of encode and decode in order.
  void host();

  std::vector<std::string> phases_ = {};  // of the kernel that sends
};

}  // namespace tithe::lang
