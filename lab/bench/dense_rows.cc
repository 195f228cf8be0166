// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

namespace tithe::bench {

void add_dense_rows(std::vector<Row>& rows) {
  add_encode(rows, "onebit", Residual::kInPlace, 0.95);
  add_encode(rows, "onebit", Residual::kApart, 0);
  add_encode(rows, "bf16", Residual::kNone, 0.90);
  add_encode(rows, "bf16", Residual::kInPlace, 0);
  add_encode(rows, "fp16", Residual::kNone, 0);
  add_encode(rows, "fp32", Residual::kNone, 0);
  add_encode(rows, "tbq", Residual::kInPlace, 0.95);
  add_encode(rows, "tbq:tau=0.001", Residual::kInPlace, 0);
  add_encode_beside(rows, "terngrad", Beside::kSum, 0.75);
  add_encode_beside(rows, "qsgd:bits=4", Beside::kSum, 0.75);
  add_encode_beside(rows, "qsgd:bits=8", Beside::kSum, 0.75);
  add_encode_beside(rows, "natural", Beside::kSum, 0.75);
  add_encode_beside(rows, "nuqsgd:bits=4", Beside::kSum, 0.40);
  add_encode(rows, "nuqsgd:bits=4", Residual::kInPlace, 0);
  add_encode_beside(rows, "minmax:bits=8", Beside::kSum, 0.50);
  add_encode_beside(rows, "minmax", Beside::kSum, 0);
  add_encode(rows, "minmax", Residual::kInPlace, 0);
  add_encode(rows, "sign", Residual::kInPlace, 0.80);
  add_decode(rows, "onebit", 4, 0.80);
  add_decode(rows, "onebit", 1, 0);
  add_decode(rows, "sign", 4, 0);
  add_decode(rows, "tbq", 4, 0);
  add_decode(rows, "qsgd", 4, 0);
  add_decode(rows, "natural", 4, 0);
  add_decode(rows, "nuqsgd:bits=4", 4, 0);
  add_decode(rows, "minmax", 4, 0);
  add_decode(rows, "bf16", 4, 0);
  add_decode(rows, "fp16", 4, 0);
  add_decode(rows, "fp32", 4, 0);
  add_encode_beside(rows, "inceptionn", Beside::kSum, 0.58);
  add_decode_beside(rows, "inceptionn", Beside::kFill, 0.40);
  add_encode_beside(rows, "inceptionn:layout=burst", Beside::kSum, 0.43);
  add_decode_beside(rows, "inceptionn:layout=burst", Beside::kSum, 0.42);
  add_encode(rows, "inceptionn", Residual::kInPlace, 0);
  add_decode(rows, "inceptionn", 4, 0);
  add_encode(rows, "snap", Residual::kInPlace, 0);
  add_encode_onward(rows, "snap", 0.90);
  add_encode_beside(rows, "rangefloat", Beside::kSum, 0.60);
  add_decode_beside(rows, "rangefloat", Beside::kFill, 0.50);
  add_encode(rows, "rangefloat", Residual::kInPlace, 0);
  add_decode(rows, "rangefloat", 4, 0);
  add_encode_beside(rows, "fp8", Beside::kSum, 0);
  add_decode_beside(rows, "fp8", Beside::kFill, 0);
  add_encode(rows, "fp8", Residual::kNone, 0);
  add_decode(rows, "fp8", 1, 0);
}

}  // namespace tithe::bench
