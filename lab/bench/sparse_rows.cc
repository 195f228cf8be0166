// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

namespace tithe::bench {

void add_sparse_rows(std::vector<Row>& rows) {
  add_encode(rows, "dgc:ratio=0.01", Residual::kInPlace, 0.90);
  add_encode(rows, "dgc:ratio=0.001", Residual::kInPlace, 0.95);
  add_encode(rows, "dragonn:ratio=0.01", Residual::kInPlace, 0.80);
  add_encode(rows, "dragonn:ratio=0.001", Residual::kInPlace, 0.95);
  add_encode(rows, "topk:ratio=0.01", Residual::kInPlace, 0.75);
  add_encode(rows, "topk:ratio=0.001", Residual::kInPlace, 0.90);
  add_decode(rows, "topk:ratio=0.01", 4, 0);
  add_sparse_merge(rows, "topk:ratio=0.01", 16, 0.70);
  add_encode(rows, "randomk:ratio=0.01", Residual::kInPlace, 0.90);
  add_decode(rows, "randomk:ratio=0.01", 1, 0);
  add_encode(rows, "blocks:ratio=0.1", Residual::kInPlace, 0);
  add_decode(rows, "blocks:ratio=0.1", 4, 0);
  add_encode(rows, "blocks", Residual::kInPlace, 0);
  add_encode(rows, "scalecom:ratio=0.01", Residual::kInPlace, 0);
  add_decode(rows, "scalecom:ratio=0.01", 1, 0);
  add_encode(rows, "threshold:tau=0.0035", Residual::kInPlace, 0.90);  // about 1 % of these values
  add_encode(rows, "graddrop:ratio=0.01", Residual::kInPlace, 0.90);
}

}  // namespace tithe::bench
