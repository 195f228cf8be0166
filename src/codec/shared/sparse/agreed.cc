// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/agreed.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/shared_indices.h"

namespace tithe::sparse {

namespace {

Status corrupt(const Agreed& of, const std::string& what) {
  return {Code::kCorrupt, std::string(of.codec) + ": " + what};
}

Status check_all_at(const Agreed& of, ByteView indices, std::span<const ByteView> arrays) {
  for (const ByteView p : arrays) TITHE_TRY(check_array(of, p));
  for (const ByteView p : arrays) TITHE_TRY(check_array_at(of, indices, p));
  return {};
}

}  // namespace

Status check_agreed(const Agreed& of, std::size_t n, ByteView indices) {
  TITHE_TRY(check_indices(of.codec, n, of.most, indices));
  if (IndexReader(indices).form().values == of.form.values) return {};
  return corrupt(of, "values in another form than the settings");
}

// Tests the largest of the counts whose arrays have this size.
Status check_array(const Agreed& of, ByteView array) {
  const ValueForm values = of.form.values;
  std::size_t count = 0;
  for (std::size_t step = std::bit_floor(of.most); step > 0; step /= 2)
    if (count + step <= of.most && value_bytes(values, count + step) <= array.size()) count += step;
  if (value_bytes(values, count) != array.size())
    return corrupt(of, std::to_string(array.size()) + " bytes are no list of values");
  if (!values_hold(values, array, count)) return corrupt(of, "an invalid code");
  return {};
}

Status check_array_at(const Agreed& of, ByteView indices, ByteView array) {
  const IndexReader reader(indices);
  const ValueForm values = reader.form().values;
  TITHE_TRY(codec::check_size(of.codec, array.size(), value_bytes(values, reader.count())));
  if (!values_hold(values, array, reader.count())) return corrupt(of, "an invalid code");
  return {};
}

Result<Encoded> send_at_ref(const Agreed& of, ByteView indices, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room(of.codec, out.size(), value_bytes(of.form.values, of.most)));
  std::vector<float> values(in.n);
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < in.n; ++i) {
    values[i] = in.value(i);
    largest = std::max(largest, magnitude(values[i]));
    in.store_residual(i, 0.0F);
  }
  IndexReader reader(indices);
  ArrayWriter writer(reader.form().values, in, out.data());
  for (std::uint32_t index = 0; reader.read({&index, 1}) > 0;) writer.send(index, values[index]);
  return Encoded{.bytes = writer.finish(), .finite = largest < kFirstNonFinite};
}

Result<Encoded> send_at_simd(const Agreed& of, ByteView indices, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room(of.codec, out.size(), value_bytes(of.form.values, of.most)));
  const IndexReader reader(indices);
  ArrayWriter writer(reader.form().values, in, out.data());
  const bool finite = store_residuals_and_send(in, reader, writer);
  return Encoded{.bytes = writer.finish(), .finite = finite};
}

Status decode_at_ref(const Agreed& of, ByteView indices, std::span<const ByteView> arrays, const Merge& merge,
                     std::span<float> out) {
  TITHE_TRY(check_all_at(of, indices, arrays));
  codec::begin_sum(merge, out);
  for (const ByteView p : arrays) {
    IndexReader reader(indices);
    std::uint32_t index = 0;
    for (std::size_t j = 0; reader.read({&index, 1}) > 0; ++j)
      out[index] += value_at(reader.form().values, p.data(), j);
  }
  codec::end_sum(merge, out);
  return {};
}

Status decode_at_simd(const Agreed& of, ByteView indices, std::span<const ByteView> arrays,
                      const Merge& merge, std::span<float> out) {
  TITHE_TRY(check_all_at(of, indices, arrays));
  const IndexReader reader(indices);
  merge_arrays<IndexReader>(arrays, merge, out, [&reader](ByteView array) {
    return IndexedArray<IndexReader>{reader.form().values, array.data(), IndexBatches(reader)};
  });
  return {};
}

Result<Combined> add_at(const Agreed& of, ByteView indices, Bytes acc, ByteView in, float* residual_out) {
  TITHE_TRY(check_array_at(of, indices, acc));
  TITHE_TRY(check_array_at(of, indices, in));
  const IndexReader reader(indices);
  return Combined{
      add_arrays(reader.form().values, reader.count(), acc.data(), in.data(), residual_out, reader)};
}

}  // namespace tithe::sparse
