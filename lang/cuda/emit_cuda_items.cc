// SPDX-License-Identifier: Apache-2.0
// Items as senders check and receivers read them.
#include "lang/cuda/emit_cuda_text.h"

namespace tithe::lang {

std::string CudaText::array_bytes(const Item& item) const {
  return item.full != 0 ? fmt::format("{}", item_bytes(item, item.full))
                        : fmt::format("(len * {} + 7) / 8", item.bits);
}

void CudaText::receive_as(const Item& item, const std::string& bits, char of) {
  if (item.input == kNone) return;
  line("const {} {} = {};", of == 'b' ? text_.number_type(item.input) : text_.value_type(item.input),
       text_.name(item.input), from_bits(item.input, bits));
  known(item.input);
}

void CudaText::hold(bool values) {
  for (std::size_t k = 0; k < program_.items.size(); ++k) {
    const int where = program_.items[k].where;
    if (where == kNone || (node(where).stage == Stage::kValue) != values) continue;
    line("if ({}!({})) say(call, {});", values || program_.block == 0 ? "" : "first < n && ",
         values ? text_.values(where) : text_.number(where), k + 1);
  }
}

}  // namespace tithe::lang
