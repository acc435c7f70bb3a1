#include "collectives/inline_message.h"

#include <cstring>

#include "collectives/transfer_cursor.h"

namespace shardcomm {
namespace {

void copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

size_t write_message(const Step& step, Rank me, std::byte* message) noexcept {
  std::byte* to = message;
  const Route own = step.geometry.route(me, me);
  const size_t omitted = step.geometry.omitted_length(me);
  for (const Item& item : step.items) {
    const size_t before = own.source_offset_bytes(item), skipped = before + omitted * own.unit_bytes(item);
    const size_t after = own.source_bytes(item) - skipped;
    copy(to, item.in, before);
    copy(to + before, item.in + skipped, after);
    to += align_item(before + after);
  }
  return static_cast<size_t>(to - message);
}

void copy_from_message(const Step& step, Rank source, Rank me, const std::byte* message) noexcept {
  const Route route = step.geometry.message_route(source, me);
  for (const Item& item : step.items) {
    copy(route.target(item), message + route.source_offset_bytes(item), route.bytes(item));
    message += align_item(route.source_bytes(item));
  }
}

void copy_own_part(const Step& step, Rank me) noexcept {
  const Route route = step.geometry.route(me, me);
  for (const Item& item : step.items) {
    const std::byte* const from = item.in + route.source_offset_bytes(item);
    std::byte* const target = route.target(item);
    if (target != from) copy(target, from, route.bytes(item));
  }
}

}  // namespace shardcomm
