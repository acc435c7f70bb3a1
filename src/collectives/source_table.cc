#include "collectives/source_table.h"

#include <algorithm>

#include "base/hash.h"
#include "collectives/call_tables.h"

namespace shardcomm {
namespace {

constexpr size_t kManyItems = 16;  // the fingerprint of fewer items costs more than it saves

bool has_fingerprint(const Step& step) noexcept { return step.items.size() >= kManyItems; }

// Where the items lie in their windows, less what differs from rank to rank: an item that is gathered in place counts
// as its whole buffer, which holds this rank's shard at a place of its own.
class Fingerprint {
 public:
  Fingerprint(const Step& step, const Route& own) noexcept
      : own_(own),
        whole_length_(step.geometry.share_offset(step.geometry.size())),
        gathers_(step.geometry.pattern() == Pattern::kGather),
        exists_(has_fingerprint(step)) {}

  // `window`: that of item.in, null where it is ordinary memory.
  void add(const Item& item, const MappedWindow* window) noexcept {
    if (!exists_) return;
    const bool in_place = gathers_ && item.in == own_.target(item);
    const std::byte* const begin = in_place ? item.out : item.in;
    exists_ = window != nullptr && (!in_place || window->holds(begin, whole_length_ * own_.unit_bytes(item)));
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

// Writes the entries that were found when the call ran before.
SourceTable write_again(const CallTables& tables, std::span<SourceEntry> entries) noexcept {
  std::copy(tables.entries.begin(), tables.entries.end(), entries.begin());
  return {.fingerprint = tables.fingerprint, .entries = entries};
}

SourceTable write_new(Execution& execution, const Step& step, std::span<SourceEntry> entries) noexcept {
  const Fabric& fabric = execution.fabric;
  const Route own = step.geometry.route(fabric.rank, fabric.rank);
  const bool attach = fabric.attaches(step.geometry.reduces());
  Fingerprint fingerprint(step, own);
  bool staged = false;
  for (size_t i = 0; i < step.items.size(); ++i) {
    const Item& item = step.items[i];
    const MappedWindow* window = execution.sources.window_of(item.in, own.source_bytes(item));
    const bool needs_ring = window == nullptr && !attach && !fabric.windows->is_one_process();
    entries[i] = {.address = reinterpret_cast<uint64_t>(item.in),
                  .window = window == nullptr ? kNoWindow : window->id,
                  .staged = needs_ring ? 1U : 0U};
    staged = staged || needs_ring;
    fingerprint.add(item, window);
  }
  if (staged) {
    for (SourceEntry& entry : entries) entry.staged = 1;
  }
  return {.fingerprint = fingerprint.value(), .staged = staged, .entries = entries};
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

}  // namespace

SourceTable write_table(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  if (!step.geometry.is_read(fabric.rank)) return {};
  auto* const begin = reinterpret_cast<SourceEntry*>(fabric.control->payload().data());
  const std::span entries(begin + (has_fingerprint(step) ? 1 : 0), step.items.size());
  const uint64_t windows = fabric.windows->version();  // read before any window is looked up
  const bool again = step.tables != nullptr && step.tables->windows == windows;
  const SourceTable table = again ? write_again(*step.tables, entries) : write_new(execution, step, entries);
  if (has_fingerprint(step)) begin->address = table.fingerprint;
  if (step.tables != nullptr && !again) keep(*step.tables, windows, table, fabric.size);
  return table;
}

size_t payload_bytes(const Step& step, const SourceTable& table) noexcept {
  if (table.entries.empty()) return 0;
  return table.entries.size_bytes() + (has_fingerprint(step) ? sizeof(SourceEntry) : 0);
}

SourceTable read_table(const Fabric& fabric, const Step& step, Rank peer) noexcept {
  const auto payload = fabric.control->payload_of(peer);
  const std::span entries(reinterpret_cast<const SourceEntry*>(payload.data()), payload.size() / sizeof(SourceEntry));
  if (entries.empty()) return {};
  if (!has_fingerprint(step)) return {.staged = entries.front().staged != 0, .entries = entries};
  const uint64_t fingerprint = entries.front().address;
  // Where all items lie in windows none is staged, and the cache lines of the entries need not be fetched to see it.
  const bool staged = fingerprint == 0 && entries[1].staged != 0;
  return {.fingerprint = fingerprint, .staged = staged, .entries = entries.subspan(1)};
}

CallTables* kept_tables(const Step& step) noexcept {
  return step.tables != nullptr && step.tables->windows != 0 ? step.tables : nullptr;
}

}  // namespace shardcomm
