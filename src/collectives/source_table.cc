#include "collectives/source_table.h"

#include <algorithm>

#include "base/hash.h"
#include "collectives/call_tables.h"

namespace shardcomm {
namespace {

// A hash of where the items lie in their windows, less what differs from rank to rank: an item gathered in place counts
// as its whole buffer, which holds this rank's shard at a place of its own.
class Fingerprint {
 public:
  Fingerprint(const Step& step, const Route& own) noexcept
      : own_(own),
        whole_length_(step.geometry.gathered_length()),
        gathers_(step.geometry.pattern() == Pattern::kGather),
        exists_(has_fingerprint(step)) {}

  // `window`: that of item.in, null where it is ordinary memory.
  void add(const Item& item, const MappedWindow* window) noexcept {
    if (!exists_) return;
    const bool in_place = gathers_ && item.in == own_.target(item);
    const std::byte* const begin = in_place ? item.out : item.in;
    exists_ = window != nullptr && window->has_counterparts() &&
              (!in_place || window->holds(begin, whole_length_ * own_.unit_bytes(item)));
    if (!exists_) return;
    hash_.add(window->id);
    hash_.add(static_cast<uint64_t>(begin - window->base) << 1 | (in_place ? 1 : 0));
  }
  // 0 of few items, and where one of them is not wholly in a window.
  uint64_t value() noexcept { return exists_ ? hash_.value() : 0; }

 private:
  const Route& own_;
  const size_t whole_length_;
  const bool gathers_;
  bool exists_;
  WordHash hash_;
};

SourceEntry* next_message(Fabric& fabric) noexcept {
  return reinterpret_cast<SourceEntry*>(fabric.control->payload().data());
}

// Writes what was found when the call ran before. What is kept has a fingerprint, so the entries come second.
SourceTable write_again(Fabric& fabric, const CallTables& tables) noexcept {
  SourceEntry* const head = next_message(fabric);
  SourceEntry* const entries = head + 1;
  head->address = tables.fingerprint;
  std::copy(tables.entries.begin(), tables.entries.end(), entries);
  return {.fingerprint = tables.fingerprint, .entries = {entries, tables.entries.size()}};
}

// Empties the tables that are kept, and lets them be filled again. Nothing is kept of items outside of windows.
void keep(CallTables& tables, uint64_t windows, const SourceTable& table, int size) {
  tables = {};
  if (table.fingerprint == 0) return;
  tables.windows = windows;
  tables.fingerprint = table.fingerprint;
  tables.entries.assign(table.entries.begin(), table.entries.end());
  tables.copies.resize(static_cast<size_t>(size));
}

// Finds where the items lie.
SourceTable write_new(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const uint64_t windows = fabric.windows->version();  // read before any window is looked up
  const Route own = step.geometry.route(fabric.rank, fabric.rank);
  const bool attach = fabric.attaches(step.geometry.reduces());
  SourceEntry* const head = next_message(fabric);
  const std::span entries(head + (has_fingerprint(step) ? 1 : 0), step.items.size());
  Fingerprint fingerprint(step, own);
  bool staged = false;
  for (size_t i = 0; i < step.items.size(); ++i) {
    const Item& item = step.items[i];
    const size_t bytes = own.source_bytes(item);
    const MappedWindow* window = execution.sources.window_of(item.in, bytes);
    const bool needs_ring = bytes != 0 && window == nullptr && !attach && !fabric.windows->is_one_process();
    entries[i] = {.address = reinterpret_cast<uint64_t>(item.in),
                  .window = window == nullptr ? kNoWindow : window->id,
                  .staged = needs_ring ? 1U : 0U};
    staged = staged || needs_ring;
    fingerprint.add(item, window);
  }
  if (staged) {
    for (SourceEntry& entry : entries) entry.staged = 1;
  }
  const SourceTable table{.fingerprint = fingerprint.value(), .staged = staged, .entries = entries};
  if (has_fingerprint(step)) head->address = table.fingerprint;
  if (step.tables != nullptr) keep(*step.tables, windows, table, fabric.size);
  return table;
}

}  // namespace

SourceTable write_table(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  if (!step.geometry.is_read(fabric.rank)) return {};
  const CallTables* const tables = step.tables;
  const bool again = tables != nullptr && tables->windows == fabric.windows->version();
  return again ? write_again(fabric, *tables) : write_new(execution, step);
}

size_t payload_bytes(const Step& step, const SourceTable& table) noexcept {
  if (table.entries.empty()) return 0;
  return table.entries.size_bytes() + (has_fingerprint(step) ? sizeof(SourceEntry) : 0);
}

bool any_staged(const Fabric& fabric, const Step& step, bool own_staged) noexcept {
  bool staged = own_staged;
  for (Rank r = 0; r < fabric.size; ++r) staged = staged || (r != fabric.rank && read_table(fabric, step, r).staged);
  return staged;
}

}  // namespace shardcomm
