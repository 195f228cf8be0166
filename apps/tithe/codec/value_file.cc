// SPDX-License-Identifier: Apache-2.0
// Reads .npy files: numpy.lib.format, versions 1.0 to 3.0:
//   "\x93NUMPY" | u8 major | u8 minor | u16 or (from 2.0) u32 header bytes | header, a Python dict as text | values
#include "value_file.h"

#include <fmt/format.h>

#include <string_view>

#include "base/bytes.h"

namespace tithe::cli {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

// The text after 'key': in the header's dict, up to the comma that ends it.
std::string_view entry(std::string_view dict, std::string_view key) {
  const std::size_t at = dict.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view rest = dict.substr(at + key.size() + 3);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const bool tuple = !rest.empty() && rest.front() == '(';
  return rest.substr(0, tuple ? rest.find(')') + 1 : rest.find_first_of(",}"));
}

Result<std::vector<float>> bare(const fs::path& path, ByteView bytes, std::size_t max_values) {
  if (bytes.size() % 4 != 0)
    return Status(Code::kInvalid, fmt::format("{}: {} bytes are neither a .npy file nor whole float32 values",
                                              path.string(), bytes.size()));
  if (bytes.size() / 4 > max_values)
    return Status(Code::kUnsupported, fmt::format("{}: holds {} values; --max-values allows {}",
                                                  path.string(), bytes.size() / 4, max_values));
  std::vector<float> values(bytes.size() / 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = wire::get<float>(&bytes[4 * i]);
  return values;
}

// The product of a shape in numpy's notation: "()", "(3,)", "(3, 4)". False for any other text, and on overflow.
bool count_of(std::string_view shape, std::size_t* count) {
  *count = 1;
  if (!shape.starts_with('(') || !shape.ends_with(')') || shape.size() < 2) return false;
  shape = shape.substr(1, shape.size() - 2);
  for (bool first = true; !shape.empty(); first = false) {
    std::size_t number = 0, digits = 0;
    for (; digits < shape.size() && shape[digits] >= '0' && shape[digits] <= '9'; ++digits)
      if (__builtin_mul_overflow(number, 10, &number) ||
          __builtin_add_overflow(number, static_cast<std::size_t>(shape[digits] - '0'), &number))
        return false;
    if (digits == 0 || __builtin_mul_overflow(*count, number, count)) return false;
    shape.remove_prefix(digits);
    if (shape.empty()) return !first;  // a single number needs its comma
    if (shape.front() != ',') return false;
    shape.remove_prefix(1);
    if (shape.starts_with(' ')) shape.remove_prefix(1);
  }
  return true;
}

}  // namespace

bool is_npy(ByteView bytes) {
  return bytes.size() >= kNpyMagic.size() &&
         std::equal(kNpyMagic.begin(), kNpyMagic.end(), reinterpret_cast<const char*>(bytes.data()));
}

// Every length of the header is checked against the file's size before it is used.
Result<std::vector<float>> parse_values(const fs::path& path, ByteView bytes, std::size_t max_values) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kNpyMagic)) return bare(path, bytes, max_values);
  const auto wrong = [&](std::string_view what) {
    return Status(Code::kInvalid, fmt::format("{}: {}", path.string(), what));
  };
  if (bytes.size() < 10) return wrong("a .npy file that is truncated in its first bytes");
  const bool wide = bytes[6] >= 2;
  if (bytes[6] < 1 || bytes[6] > 3 || (wide && bytes.size() < 12))
    return wrong("a .npy file with an unknown version");
  const std::size_t at = wide ? 12 : 10;
  const std::size_t header_bytes =
      wide ? wire::get<std::uint32_t>(&bytes[8]) : wire::get<std::uint16_t>(&bytes[8]);
  if (header_bytes > bytes.size() - at) return wrong("a .npy file that is truncated in its header");
  const std::string_view dict = text.substr(at, header_bytes);
  const std::string_view type = entry(dict, "descr");
  const std::string_view shape = entry(dict, "shape");
  if (type != "'<f4'")
    return wrong(fmt::format(
        "holds values of type {}, need '<f4'; in Python: numpy.save(path, a.astype('<f4'))", type));
  const std::string_view order = entry(dict, "fortran_order");
  if (order != "False" && order != "True") return wrong("a .npy file without an order");
  std::size_t count = 0;
  if (!count_of(shape, &count)) return wrong(fmt::format("its shape {} is invalid", shape));
  if (order == "True" && shape.find(',') + 2 < shape.size())
    return wrong("is in Fortran order; in Python: numpy.save(path, numpy.ascontiguousarray(a))");
  if (count > bytes.size() / 4 || 4 * count != bytes.size() - at - header_bytes)
    return wrong(fmt::format("its shape {} does not fit the {} bytes of values", shape,
                             bytes.size() - at - header_bytes));
  return bare(path, bytes.subspan(at + header_bytes), max_values);
}

Status write_values(const fs::path& path, std::span<const float> values) {
  std::string bytes;
  if (path.extension() == ".npy") {
    std::string dict =
        fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.size());
    dict.append(63 - (kNpyMagic.size() + 4 + dict.size()) % 64, ' ');
    dict += '\n';
    bytes = kNpyMagic;
    bytes += {1, 0, static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
    bytes += dict;
  }
  const std::size_t head = bytes.size();
  bytes.resize(head + 4 * values.size());
  auto* raw = reinterpret_cast<std::uint8_t*>(bytes.data());
  for (std::size_t i = 0; i < values.size(); ++i) wire::put(raw + head + 4 * i, values[i]);
  return write_file(path, {raw, bytes.size()});
}

}  // namespace tithe::cli
