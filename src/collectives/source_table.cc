#include "collectives/source_table.h"

#include <algorithm>

#include "collectives/placement.h"
#include "collectives/word_hash.h"

namespace shardcomm {
namespace {

constexpr size_t kManyItems = 16;  // the layout of fewer costs more than it saves

bool has_layout(const Step& step) noexcept { return step.items.size() >= kManyItems; }

// Adds where an item lies in its window, less what differs from rank to rank. False: partly outside.
bool add_place(WordHash& layout, const Item& item, bool in_place, size_t whole_bytes,
               const MappedWindow& window) noexcept {
  const std::byte* begin = in_place ? item.out : item.in;
  if (in_place && !window.holds(begin, whole_bytes)) return false;
  layout.add(window.id);
  layout.add(static_cast<uint64_t>(begin - window.base) << 1 | (in_place ? 1 : 0));
  return true;
}

// Has the tables of `placement` filled anew from now on. Nothing is kept of items outside of windows.
void keep(Placement& placement, uint64_t windows, const SourceTable& table, int size) {
  placement = {};
  if (table.layout == 0) return;
  placement.windows = windows;
  placement.layout = table.layout;
  placement.entries.assign(table.entries.begin(), table.entries.end());
  placement.copies.resize(static_cast<size_t>(size));
}

}  // namespace

SourceTable write_table(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const Rank me = fabric.rank();
  SourceTable table;
  if (!step.geometry.reads_from(me)) return table;
  auto* const begin = reinterpret_cast<SourceEntry*>(fabric.payload().data());
  auto* const entries = begin + (has_layout(step) ? 1 : 0);
  const uint64_t windows = fabric.windows_version();  // before any is looked at
  if (step.placement != nullptr && step.placement->windows == windows) {
    begin->address = step.placement->layout;
    std::copy(step.placement->entries.begin(), step.placement->entries.end(), entries);
    return {step.placement->layout, false, {entries, step.items.size()}};
  }
  const Route own = step.geometry.route(me, me);
  const size_t whole = step.geometry.share_offset(step.geometry.size());
  const bool gathers = step.geometry.pattern() == Pattern::kGather;
  const bool attach = fabric.attaches(step.geometry.reduces());
  bool alike = has_layout(step);
  WordHash layout;
  for (size_t i = 0; i < step.items.size(); ++i) {
    const Item& item = step.items[i];
    const MappedWindow* window = execution.sources.window_of(item.in, own.in_bytes(item));
    const bool needs_ring = window == nullptr && !attach && !fabric.is_one_process();
    entries[i] = {reinterpret_cast<uint64_t>(item.in), window == nullptr ? kNoWindow : window->id,
                  needs_ring ? 1U : 0U};
    table.staged = table.staged || needs_ring;
    if (!alike) continue;
    const bool in_place = gathers && item.in == own.place(item);
    alike = window != nullptr && add_place(layout, item, in_place, whole * own.unit_bytes(item), *window);
  }
  table.entries = {entries, step.items.size()};
  if (table.staged) {
    for (size_t i = 0; i < step.items.size(); ++i) entries[i].staged = 1;
  }
  if (has_layout(step)) {
    table.layout = alike ? layout.value() : 0;
    begin->address = table.layout;
  }
  if (step.placement != nullptr) keep(*step.placement, windows, table, fabric.size());
  return table;
}

size_t payload_bytes(const Step& step, const SourceTable& table) noexcept {
  if (table.entries.empty()) return 0;
  return table.entries.size_bytes() + (has_layout(step) ? sizeof(SourceEntry) : 0);
}

SourceTable read_table(const Fabric& fabric, const Step& step, Rank peer) noexcept {
  const auto payload = fabric.payload_of(peer);
  const std::span entries(reinterpret_cast<const SourceEntry*>(payload.data()), payload.size() / sizeof(SourceEntry));
  if (entries.empty()) return {};
  if (!has_layout(step)) return {0, entries.front().staged != 0, entries};
  const uint64_t layout = entries.front().address;  // one line's way; the entries' lines stay where they are
  return {layout, layout == 0 && entries[1].staged != 0, entries.subspan(1)};
}

}  // namespace shardcomm
