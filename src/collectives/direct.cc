// The large-message engine: every rank reads its peers' memory where it lies, so each byte is copied once. Gathers are
// n − 1 reads of a shard; reductions read all n sources in rank order and write once, so that there is one rounding and
// the bits depend on nothing but the inputs.
#include <fmt/format.h>

#include <vector>

#include "collectives/engine.h"
#include "kernels/kernels.h"

namespace shardcomm {
namespace {

constexpr size_t kMaxEntries = kInlineCapacity / sizeof(SourceEntry);

// Announces where this rank's bytes are. Gives whether they go through the staging ring.
bool announce_sources(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  auto* entries = reinterpret_cast<SourceEntry*>(fabric.payload().data());
  size_t count = 0;
  bool staged = false;
  if (step.geometry.reads_from(fabric.rank())) {
    for (const Item& item : step.items) {
      entries[count] = execution.sources.describe(item.in, step.geometry.in_bytes(item, fabric.rank()));
      staged = staged || entries[count].staged != 0;
      ++count;
    }
    for (size_t i = 0; i < count; ++i) entries[i].staged = staged ? 1 : 0;
  }
  announce(execution, step.phase, count * sizeof(SourceEntry));
  return staged;
}

Status unreadable(Rank peer) {
  return Status(Code::kFailedPrecondition,
                fmt::format("rank {} offers memory in a window that this rank has destroyed", peer));
}

}  // namespace

Status copy_from(Execution& execution, const Step& step, Rank source) {
  Fabric& fabric = execution.fabric;
  const bool own = source == fabric.rank();
  const auto entries = own ? std::span<const SourceEntry>() : entries_of(fabric, source);
  for (size_t i = 0; i < step.items.size(); ++i) {
    const Item& item = step.items[i];
    const Transfer transfer = step.geometry.transfer(item, source, fabric.rank());
    if (transfer.bytes == 0) continue;
    std::byte* target = step.geometry.target(item, source);
    const std::byte* base = own ? item.in : execution.sources.map(source, entries[i]);
    if (base != nullptr) {
      const kernels::CopyLaunch copy{target, base + transfer.offset_bytes, transfer.bytes, execution.footprint_bytes};
      SHARDCOMM_TRY(kernels::launch(copy, StreamRef::caller()));  // nothing to do where they are the same place
    } else if (fabric.attach()) {
      SHARDCOMM_TRY(fabric.read(source, target, entries[i].address + transfer.offset_bytes, transfer.bytes));
    } else {
      return unreadable(source);
    }
  }
  return {};
}

namespace {

// Each rank begins with its neighbour, so that at any moment the sources of all ranks differ.
Status gather(Execution& execution, const Step& step) {
  const int size = execution.fabric.size();
  for (int distance = 0; distance < size; ++distance) {
    const Rank source = (execution.fabric.rank() + distance) % size;
    if (step.geometry.reads_from(source)) SHARDCOMM_TRY(copy_from(execution, step, source));
  }
  return {};
}

// Addresses of the sources of one item. Where one is not mapped, its runs are read into `scratch`.
struct ReduceSources {
  std::vector<const std::byte*> base;  // by rank; null: to be attached
  std::vector<uint64_t> address;       // by rank, in the owner's process
  bool attached = false;
};

Status find_sources(Execution& execution, const Step& step, size_t i, ReduceSources& found) {
  Fabric& fabric = execution.fabric;
  const Item& item = step.items[i];
  found.attached = false;
  for (Rank r = 0; r < fabric.size(); ++r) {
    const Transfer transfer = step.geometry.transfer(item, r, fabric.rank());
    const auto k = static_cast<size_t>(r);
    found.base[k] = item.in + transfer.offset_bytes;
    if (r == fabric.rank()) continue;
    const SourceEntry& entry = entries_of(fabric, r)[i];
    const std::byte* mapped = execution.sources.map(r, entry);
    found.base[k] = mapped == nullptr ? nullptr : mapped + transfer.offset_bytes;
    found.address[k] = entry.address + transfer.offset_bytes;
    if (mapped != nullptr) continue;
    if (!fabric.attach()) return unreadable(r);
    found.attached = true;
  }
  return {};
}

Status reduce(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const auto size = static_cast<size_t>(fabric.size());
  thread_local std::vector<std::byte> scratch;  // one piece of each attached source
  thread_local ReduceSources found;
  thread_local std::vector<const void*> sources;
  found.base.resize(size);
  found.address.resize(size);
  sources.resize(size);
  for (size_t i = 0; i < step.items.size(); ++i) {
    const Item& item = step.items[i];
    const size_t bytes = step.geometry.transfer(item, fabric.rank(), fabric.rank()).bytes;
    if (bytes == 0) continue;
    SHARDCOMM_TRY(find_sources(execution, step, i, found));
    const size_t piece = found.attached ? execution.chunk_bytes : bytes;
    if (found.attached) scratch.resize(std::max(scratch.size(), piece * size));
    for (size_t offset = 0; offset < bytes; offset += piece) {
      const size_t run = std::min(piece, bytes - offset);
      for (size_t r = 0; r < size; ++r) {
        sources[r] = found.base[r] != nullptr ? found.base[r] + offset : scratch.data() + r * piece;
        if (found.base[r] != nullptr) continue;
        SHARDCOMM_TRY(fabric.read(static_cast<Rank>(r), scratch.data() + r * piece, found.address[r] + offset, run));
      }
      SHARDCOMM_TRY(reduce_run(execution, item, offset, run, sources));
    }
  }
  return {};
}

Status run_batch(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const bool own_staged = announce_sources(execution, step);
  SHARDCOMM_TRY(fabric.collect(execution.limit));
  bool any_staged = own_staged;
  for (Rank r = 0; r < fabric.size(); ++r) {
    any_staged = any_staged || (r != fabric.rank() && is_staged(entries_of(fabric, r)));
  }
  if (any_staged) {
    SHARDCOMM_TRY(run_staged(execution, step, own_staged));
  } else {
    SHARDCOMM_TRY(step.geometry.reduces() ? reduce(execution, step) : gather(execution, step));
  }
  count_traffic(execution, step);
  fabric.finish_reading();
  return step.last ? fabric.await_readers(execution.limit) : Status();
}

}  // namespace

Status run_direct(Execution& execution, const Step& step) {
  for (size_t first = 0;;) {
    const size_t count = std::min(kMaxEntries, step.items.size() - first);
    const bool more = first + count < step.items.size();
    SHARDCOMM_TRY(
        run_batch(execution, Step{step.geometry, step.items.subspan(first, count), step.phase, step.last || more}));
    if (!more) return {};
    first += count;
  }
}

}  // namespace shardcomm
