// The large-message engine, for memory that peers can read: every rank reads its peers' memory where it lies, so each
// byte is copied once. Gathers are n − 1 reads of a shard; reductions read all n sources in rank order and write once,
// so that there is one rounding and the bits depend on nothing but the inputs.
//
// The protocol of a step, the same on every rank:
//   1. write_table, announce       says what this rank does and where its bytes are
//   2. collect                     waits until every rank has, and checks that all agree
//   3. move                        takes what is this rank's own from the peers' memory
//   4. finish_reading              hands the peers' memory back
//   5. await_readers               waits until the peers that read this rank's memory have handed it back, so that it
//   may
//                                  change
#include <algorithm>

#include "collectives/call_tables.h"
#include "collectives/direct_copy.h"
#include "collectives/direct_reduce.h"
#include "collectives/engine.h"
#include "collectives/source_table.h"

namespace shardcomm {
namespace {

Status move(Execution& execution, const Step& step, const SourceTable& own) {
  if (any_staged(execution.fabric, step, own.staged)) return run_staged(execution, step, own.staged);
  if (step.geometry.reduces()) return reduce_direct(execution, step, own.fingerprint);
  return copy_direct(execution, step, own.fingerprint);
}

// Runs a step whose items fit one announcement.
Status run_announced(Execution& execution, const Step& step) {
  Fabric& fabric = execution.fabric;
  const SourceTable own = write_table(execution, step);
  announce(execution, step.phase, payload_bytes(step, own));
  SHARDCOMM_TRY(fabric.control->collect(execution.limit));
  SHARDCOMM_TRY(move(execution, step, own));
  fabric.control->finish_reading();
  return step.last ? await_readers(execution, step.geometry) : Status();
}

// Returns the tables kept for an operation; null if it is not prepared or takes several announcements.
CallTables* tables_of(const Operation& operation) {
  if (operation.prepared == nullptr || operation.items.size() > kMaxEntries) return nullptr;
  if (operation.prepared->tables == nullptr) operation.prepared->tables = std::make_shared<CallTables>();
  return operation.prepared->tables.get();
}

}  // namespace

Status run_direct(Execution& execution, const Step& step) {
  for (size_t first = 0;;) {
    const size_t count = std::min(kMaxEntries, step.items.size() - first);
    const bool more = first + count < step.items.size();
    SHARDCOMM_TRY(run_announced(execution, {.geometry = step.geometry,
                                            .items = step.items.subspan(first, count),
                                            .phase = step.phase,
                                            .last = step.last || more,
                                            .tables = tables_of(execution.operation)}));
    if (!more) break;
    first += count;
  }
  count_traffic(execution, step);
  return {};
}

}  // namespace shardcomm
