// SPDX-License-Identifier: Apache-2.0
// The table of transports, and the parser of "name:option=value,...".
#include "transport/transports.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/text.h"

namespace tithe {
namespace {

constexpr std::size_t kMaxNameBytes = 32;

std::vector<std::string_view> names_of(std::span<const TransportOption> options) {
  std::vector<std::string_view> names;
  for (const TransportOption& o : options) names.push_back(o.name);
  return names;
}

Result<TransportChoice> choose_first() {
  std::string passed_over;
  for (const TransportKind* kind : all_transports()) {
    if (kind->open == nullptr) continue;
    if (const Status s = kind->usable(); !s.ok()) {
      passed_over += fmt::format("{}{}: {}", passed_over.empty() ? "" : "; ", kind->name, s.what());
      continue;
    }
    TransportChoice choice{.kind = kind};
    for (const TransportOption& o : kind->options) choice.values.emplace_back(o.fallback);
    choice.why = passed_over.empty()
                     ? "the first usable transport between processes"
                     : fmt::format("the first usable transport between processes; {}", passed_over);
    return choice;
  }
  return Status(Code::kUnsupported, fmt::format("no transport between processes: {}", passed_over));
}

Status check_between_processes(const TransportKind& kind) {
  if (kind.open != nullptr) return {};
  return {Code::kInvalid,
          fmt::format(
              "transport {} only connects threads of one process: between processes use another transport",
              kind.name)};
}

// Splits off the first item of a list `a=1,b=2,3`: an item ends at the comma before the next `name=`.
std::string_view next_item(std::string_view& rest) {
  std::size_t comma = rest.find(',');
  while (comma != std::string_view::npos) {
    const std::size_t next = rest.find(',', comma + 1);
    if (rest.substr(comma + 1, next - comma - 1).find('=') != std::string_view::npos) break;
    comma = next;
  }
  const std::string_view item = rest.substr(0, comma);
  rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  return item;
}

// All ranks must open the same transport, so each rank's blob starts with the name of its transport.
//
// Layout   u8 bytes of the name | name | the transport's own blob
std::vector<std::uint8_t> with_name(std::string_view name, ByteView blob) {
  std::vector<std::uint8_t> out{static_cast<std::uint8_t>(name.size())};
  out.insert(out.end(), name.begin(), name.end());
  out.insert(out.end(), blob.begin(), blob.end());
  return out;
}

Status take_name(std::string_view name, Rank rank, std::vector<std::uint8_t>& blob) {
  const std::size_t bytes = blob.empty() ? 0 : blob.front();
  if (bytes == 0 || bytes > kMaxNameBytes || bytes >= blob.size())
    return {Code::kCorrupt,
            fmt::format("the address blob that rank {} passed to the exchange is damaged", rank), rank};
  const std::string_view other(reinterpret_cast<const char*>(&blob[1]), bytes);
  if (other != name)
    return {Code::kMismatch,
            fmt::format(
                "rank {} opens the transport '{}', this rank opens '{}': set the same transport on all ranks",
                rank, printable(other, kMaxNameBytes), name),
            rank};
  blob.erase(blob.begin(), blob.begin() + 1 + static_cast<std::ptrdiff_t>(bytes));
  return {};
}

AllGather named(const AllGather& gather, std::string_view name) {
  return [&gather, name](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    Result<std::vector<std::vector<std::uint8_t>>> all = gather(with_name(name, mine));
    if (!all.ok()) return all.status();
    for (std::size_t r = 0; r < all->size(); ++r) TITHE_TRY(take_name(name, static_cast<Rank>(r), (*all)[r]));
    return all;
  };
}

}  // namespace

ConnectOptions connect_options(const Launch& launch) {
  return {.rank = launch.rank,
          .world = launch.world,
          .all_gather = open_rendezvous(launch),
          .token = launch.token,
          .timeout = launch.timeout,
          .interrupted = launch.interrupted};
}

std::span<const TransportKind* const> all_transports() {
  static constexpr const TransportKind* kAll[] = {
#define TITHE_TRANSPORT(name) &name##_transport,
#include "tithe/transports.def"
#undef TITHE_TRANSPORT
  };
  return kAll;
}

const TransportKind* find_transport(std::string_view name) {
  for (const TransportKind* kind : all_transports())
    if (kind->name == name) return kind;
  return nullptr;
}

// Options that are not given keep their defaults; each may be given once.
Result<TransportChoice> choose_transport(std::string_view text) {
  if (text.empty() || text == "auto") return choose_first();
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  TransportChoice choice{.kind = find_transport(name), .values = {}, .why = "as asked"};
  if (choice.kind == nullptr) {
    std::vector<std::string_view> known{"auto"};
    for (const TransportKind* kind : all_transports()) known.push_back(kind->name);
    return Status(Code::kInvalid, fmt::format("unknown transport '{}': {}", name, suggest(name, known)));
  }
  const std::span<const TransportOption> options = choice.kind->options;
  for (const TransportOption& o : options) choice.values.emplace_back(o.fallback);
  std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty())
    return Status(Code::kInvalid, fmt::format("'{}': nothing after the colon", text));
  std::vector<bool> seen(options.size());
  while (!rest.empty()) {
    const std::string_view item = next_item(rest);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      return Status(Code::kInvalid, fmt::format("'{}': '{}' must have the form name=value", text, item));
    const std::string_view key = item.substr(0, equals);
    const auto at = static_cast<std::size_t>(
        std::find_if(options.begin(), options.end(), [&](const auto& o) { return o.name == key; }) -
        options.begin());
    if (at == options.size())
      return Status(Code::kInvalid, options.empty() ? fmt::format("{} takes no options", name)
                                                    : fmt::format("{} has no option '{}': {}", name, key,
                                                                  suggest(key, names_of(options))));
    if (seen[at]) return Status(Code::kInvalid, fmt::format("'{}': {} is given twice", text, key));
    seen[at] = true;
    choice.values[at] = item.substr(equals + 1);
  }
  TITHE_TRY(choice.kind->usable());
  return choice;
}

Status check_transport(std::string_view text, Rank rank) {
  const Result<TransportChoice> choice = choose_transport(text);
  if (!choice.ok()) return choice.status();
  TITHE_TRY(check_between_processes(*choice->kind));
  return choice->kind->check == nullptr ? Status() : choice->kind->check(rank, choice->values);
}

// If this rank's values are wrong, kind.open reports that to the other ranks, so check_transport() is not called here.
Result<std::unique_ptr<Transport>> open_transport(std::string_view text, const ConnectOptions& options) {
  const Result<TransportChoice> choice = choose_transport(text);
  if (!choice.ok()) return choice.status();
  const TransportKind& kind = *choice->kind;
  TITHE_TRY(check_between_processes(kind));
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world)
    return Status(Code::kInvalid, fmt::format("rank {} of world size {}", options.rank, options.world));
  if (options.timeout.count() <= 0) return Status(Code::kInvalid, "timeout must be positive");
  if (!options.token.empty() && options.token.size() < kMinTokenBytes)
    return Status(Code::kInvalid, fmt::format("a job token of {} bytes; it must have at least {}",
                                              options.token.size(), kMinTokenBytes));
  if (options.world > 1 && !options.all_gather)
    return Status(Code::kInvalid,
                  "a world of several ranks needs an all_gather function to exchange addresses");
  ConnectOptions with_names = options;
  with_names.all_gather = named(options.all_gather, kind.name);
  return kind.open(with_names, choice->values);
}

}  // namespace tithe
