#include "base/call.h"

#include <fmt/format.h>

#include <iterator>

namespace shardcomm {
namespace {

std::string_view verb(const Call& call) noexcept {
  if (call.kind == CallKind::kAgreement) return "agreement";
  return call.kind == CallKind::kMosaic ? "all_gather_mosaic" : name(call.collective);
}

}  // namespace

CallFields fields_of(const Call& call) noexcept {
  if (call.kind == CallKind::kAgreement) return {};
  const CollectiveTraits& has = traits(call.collective);
  return {.dtype = has.has_elements && !has.is_many,
          .count = has.has_elements && !has.has_own_counts(),
          .op = has.reduces() && !has.is_many,
          .root = has.has_root,
          .items = has.is_many};
}

std::string text(const Call& call, std::string_view label) {
  const CallFields has = fields_of(call);
  std::string text(verb(call));
  const auto to = std::back_inserter(text);
  if (has.dtype) fmt::format_to(to, " {}", name(call.dtype));
  if (has.count) fmt::format_to(to, " {}", call.count);
  if (has.items) fmt::format_to(to, " in {} items", call.root_or_items);
  if (has.op) fmt::format_to(to, " {}", name(call.op));
  if (has.root)
    fmt::format_to(to, " {} root {}", traits(call.collective).goes_to_root() ? "to" : "from", root_of(call));
  if (!label.empty()) fmt::format_to(to, " '{}'", label);
  return text;
}

std::string text(const MessageCall& call, std::string_view label) {
  std::string text = fmt::format("{} {} {} {} rank {} tag {}", call.is_send ? "send" : "recv", name(call.dtype),
                                 call.count, call.is_send ? "to" : "from", call.peer, call.tag);
  if (!label.empty()) fmt::format_to(std::back_inserter(text), " '{}'", label);
  return text;
}

}  // namespace shardcomm
