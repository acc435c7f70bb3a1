// ZeRO over a Communicator (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models"; stage 3 is what FSDP does, Zhao et al. 2023). Parameters belong to units. The training loop, in any
// framework, calls two hooks round each unit's computation:
//
//   before(unit, pass, stream);
//     … parameters(unit) are whole, gradients are accumulated with += …
//   after(unit, pass, stream);
//   …
//   finish_step(stream);   every shard gradient is final
//   optimizer.step(rate);
//
// AdamW is one optimizer; your own is written on the same functions (examples/lion.h):
//
//   begin_update();        waits for what is in flight; from here on, masters may be written
//     … for each of pieces(): master -= rate * f(gradient) …
//   publish();             ends the update: bf16 values are rounded from the masters, stages 1 and 2 gather the values
//   zero_gradients();
//
// stage   parameters      gradients                        optimizer state
//   0     whole           whole, all-reduced               whole
//   1     whole           whole, reduce-scattered          sharded
//   2     whole           sharded; whole only in a unit    sharded
//   3     sharded;        sharded; whole only in a unit    sharded
//         whole only in a unit
//
// A single rank holds everything whole: its stage 3 is stage 2, which gathers nothing.
//
// At one world size all stages, bucket sizes and prefetch depths give the same bits (f32 gradients).
//
// Parameters change in updates and in fill_parameters() only, and an engine is in one of three states:
//
//                    before()                 begin_update()
//   in a step  <-----------------  at rest  ------------------>  in an update: masters may be written
//              ----------------->           <------------------
//                 finish_step()                  publish()
//
// A call that does not fit the state is kFailedPrecondition, changes nothing, and says what to do: before() in an
// update, publish() at rest, begin_update() or gradient_norm() in a step, when the gradients are not final,
// zero_gradients() while a unit is open.
//
// Memory that was written against these rules is found by comparison: what a rank owns must be as the last update left
// it. The first before() of a step, after() in backward, begin_update(), publish() and synchronize() compare. Buckets
// of which the rank owns up to 16 KiB are compared whole, larger ones in 64 cache lines spread evenly. So an optimizer
// that forgot to publish is found at once where it changes nearly every element; one that changes a few rows of a large
// table is found when it first changes a compared line, which may take many steps, and a single element of a large
// bucket may never be.
// The error is that rank's alone, and repeats until fill_parameters() or load_checkpoint() sets the parameters again.
// It does not hold up the peers' update: begin_update() that is refused so stands for this rank's whole update, and a
// publish() that is refused so goes on to the end of it. At stages 1 and 2 both give the peers the values as they are,
// unit by unit, in the order of units. A rank that then leaves the loop calls Communicator::abort(), so that its peers
// learn why.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shardcomm/bucket.h"

namespace shardcomm {

using UnitId = uint32_t;
enum class Pass : uint8_t { kForward, kBackward };
enum class UnitState : uint8_t { kSharded, kGathering, kGathered };

struct ParameterSpec {
  std::string name;  // unique in its unit; "unit.name" is unique in the engine and names it in checkpoints
  std::vector<size_t> shape;
  DType dtype = DType::kF32;  // kF32, or kBF16 with an f32 master copy beside this rank's part (if trainable)
  bool trainable = true;      // false: gathered and freed, but no gradient, no moments, no decay, not in the norm
  float decay_factor = 1;     // times AdamWOptions::weight_decay
  // "unit.name" of a parameter declared earlier: same storage, one gradient. Shape, dtype and trainable must match; the
  // owner's decay_factor holds.
  std::string tied_to = {};
};
struct UnitSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
};

// Valid between before() and after(). `gradient` is null in forward and for what is not trainable; in backward it holds
// zeros, or what earlier uses in this pass (tied) or unsynchronized micro-batches have accumulated. Elements of
// `gradient` are of ZeroOptions::gradient_dtype.
// `value` is for reading. At stages 0 to 2 it is the parameter's own memory, and writing it is found as said above (by
// the rank that owns the element); at stage 3 it is a copy, and what is written there is forgotten when the unit is
// freed (with mosaic: SIGSEGV).
struct ParameterView {
  std::byte* value;
  std::byte* gradient;
  size_t count;
  DType dtype;
  DType gradient_dtype;
};

// A run of consecutive elements of one parameter that this rank owns (stage 0: all of it). A parameter that is cut
// because it is larger than bucket_bytes has a run in each of its buckets. The pointers stay valid as long as the
// engine.
struct ShardPiece {
  UnitId unit;
  uint32_t parameter;  // index in its unit
  size_t offset;       // first element, in the flattened parameter
  size_t count;
  std::byte* value;  // of the parameter's dtype, for reading: publish() makes it of the master
  float* gradient;   // the reduced sum, final in an update; f32 at every gradient_dtype; null when not trainable
  float* master;     // what an update writes: f32 at every dtype, `value` itself where that is f32; null like gradient
  size_t state_offset;  // where arrays of optimized_count() elements, like moments, have this piece; 0 if not trainable
};

struct ZeroOptions {
  int stage = 3;
  int prefetch_units = 1;  // units whose gathers are kept in flight ahead of compute (stage 3)
  // A bucket is what one collective moves: no more than this, in bytes of parameter values; 0: no limit. Units do not
  // share buckets. A larger unit has several, and a larger parameter is cut between rows of its first dimension (inside
  // a row only if a row is too large, or if no number of rows that fits divides evenly among the ranks). A unit is
  // computed when all of its buckets are there; they are gathered ahead, reduced and given back one by one. At stages 2
  // and 3 the whole gradients of two buckets at most are in flight behind the unit that computes. So less costs more
  // operations, needs less memory, and hides less of a large unit's reduction.
  size_t bucket_bytes = size_t{64} << 20;
  // Prefetch never takes gathered parameters beyond this, and gathers the buckets of a unit that fit; 0: what two units
  // need at once (with what they are tied to).
  size_t gathered_bytes_limit = 0;
  // false: keep units gathered until their last use: memory for a gather; there is no limit then. (With true too, a
  // unit stays when the next use needs it: the last of forward is the first of backward.)
  bool free_after_forward = true;
  // Stage 3, ranks of one node: values are read in all ranks' memory itself (MosaicWindow), so that a gather takes no
  // time and no memory. parameters(unit) are then for reading only. finish_step waits until all ranks have read: change
  // values in an update after it. Buckets of which whole pages would make more than an eighth padding are gathered as
  // before. No parameter is cut, because a mosaic is contiguous only in itself. The bits are the same.
  bool mosaic = false;
  DType gradient_dtype = DType::kF32;  // of whole gradients and on the wire (kF32, kBF16); sums and shards are f32
  bool poison_freed = false;           // for tests: freed parameters and gradients read as NaN, so that late uses show
};

// Bytes of this rank, by purpose; counted at every allocation and free. What units hold only in flight comes from an
// arena of as many bytes as the declared order needs at most; its bytes count while a unit has them.
struct MemoryReport {
  size_t parameter_bytes = 0;  // shards (stages 0–2: whole parameters)
  size_t gradient_bytes = 0;   // shard gradients (stages 0, 1: whole gradients)
  size_t optimizer_bytes = 0;  // master copies, moments of AdamW, and what else count_optimizer_bytes() was told
  size_t gathered_bytes = 0;   // whole parameters of units in flight (stage 3)
  size_t unreduced_bytes = 0;  // whole gradients of units in flight (stages 2, 3)
  size_t live_bytes = 0;       // sum of the above
  size_t peak_bytes = 0;       // largest live_bytes since creation or reset_peak()
};

// What a run of this shape with AdamW would need and move per rank and step, computed without a communicator.
struct ZeroEstimate {
  size_t peak_bytes = 0;      // to compare with MemoryReport::peak_bytes
  size_t bytes_per_step = 0;  // parameter and gradient payload sent by one rank in one step after the first
  size_t parameter_count = 0;
  std::string formula;  // bytes_per_step in words and numbers
};
SHARDCOMM_EXPORT Result<ZeroEstimate> estimate_zero(std::span<const UnitSpec> units, int world_size,
                                                    const ZeroOptions& options);

// Thread rule: one thread at a time. The engine owns the stream its collectives run on. Compute streams are host
// streams or the caller; with one that is asynchronous, parameters(unit) may be used by what is enqueued between the
// hooks.
class SHARDCOMM_EXPORT ZeroEngine {
 public:
  // Collective; fails on every rank when units or options differ between ranks. `comm` must outlive the engine and
  // carries only the engine's operations and the caller's own, in one order.
  static Result<ZeroEngine> create(Communicator& comm, std::span<const UnitSpec> units, const ZeroOptions& options);
  ZeroEngine(ZeroEngine&&) noexcept;
  ZeroEngine& operator=(ZeroEngine&&) noexcept;
  // Waits for what is in flight, on its own stream and on the compute streams: at most 5 s, or the communicator's
  // timeout if that is shorter. What has not ended then waits for a peer or for a task of the caller's: the
  // communicator is aborted, so that no peer waits for this rank, and the wait is repeated once. If a stream is still
  // busy, the engine's memory is left to it (and logged), because tasks may yet touch it. So it takes 10 s at most.
  ~ZeroEngine();

  // Leads to the engine wherever it is moved to. Cheap to copy; owns nothing, so using it once the engine has been
  // destroyed, or overwritten by another, is undefined. What keeps an engine for later, like an optimizer, keeps this.
  class Ref;
  Ref ref() noexcept;

  // Sets this rank's part of every parameter: fill(unit, parameter, offset, values) writes elements
  // [offset, offset + values.size()) of the flattened parameter in f32; masters and shards follow. Call order and split
  // are not promised, so the values must depend on (parameter, element) only. Ends an update in progress, as publish()
  // does, but with the values as they were. Local, but waits for what is in flight.
  Status fill_parameters(
      const std::function<void(UnitId, uint32_t parameter, size_t offset, std::span<float> values)>& fill);

  // The two hooks. Between them, and only between them, parameters(unit) are whole. Different units may be nested.
  // before: gathers, or joins the prefetched gather. after: frees; in backward, once all who use the unit's parameters
  // (itself, and those tied to them) have been there, also reduces its gradients. An error of after() is also given by
  // the next finish_step().
  Status before(UnitId unit, Pass pass, StreamRef compute);
  Status after(UnitId unit, Pass pass, StreamRef compute);
  // Ends a micro-batch, step or evaluation: with gradient sync on, every shard gradient is final once `compute` gets
  // here. Nothing stays gathered.
  Status finish_step(StreamRef compute);

  // Accumulation. on (default): each backward reduces into the shard gradients, which add up until zero_gradients().
  // off: whole gradients stay local and add up (memory: stages 2 and 3 then keep them); the next backward with sync on
  // reduces the total. Set it between steps, equally on all ranks.
  void set_gradient_sync(bool on) noexcept;
  // Reduced or not. Not between before() and after(): kFailedPrecondition names the unit that is open. Waits for
  // reductions in flight and for compute streams, not for values that were published.
  Status zero_gradients();

  // Opens an update: waits for what is in flight, and drops what is gathered ahead. The gradients must be final.
  Status begin_update();
  // The masters of this unit are final: makes its values of them, and at stages 1 and 2 enqueues the gather that gives
  // them to all ranks, which the next before() joins. So the gather of one unit runs while the next is computed. Once a
  // unit and update; in one order on all ranks.
  Status publish(UnitId unit);
  // The same for all units not yet published, in their order; ends the update. What publish(unit) found in this update
  // to have been written wrongly is its error too.
  Status publish();
  // Blocks until everything in flight here has ended, published values included; asynchronous errors surface here.
  // After kTimedOut it may be called again. It does not say that other ranks have got as far.
  Status synchronize(Deadline deadline);

  std::span<const ParameterView> parameters(UnitId unit) const;  // empty unless between before and after
  std::span<const ShardPiece> pieces() const noexcept;  // everything this rank owns, in unit and parameter order
  size_t optimized_count() const noexcept;              // elements of an array over all trainable pieces, with padding
  UnitState state(UnitId unit) const noexcept;
  std::span<const UnitSpec> units() const noexcept;
  const ZeroOptions& options() const noexcept;
  Communicator& communicator() const noexcept;

  // Collective: the 2-norm of all final shard gradients, each parameter once; the same bits on every rank, at every
  // stage and bucket size. Infinite or NaN when a gradient is. Waits for what is in flight.
  Result<double> gradient_norm();
  MemoryReport memory() const noexcept;
  void reset_peak() noexcept;
  // Counts the state of an optimizer in optimizer_bytes, as long as a copy of the result lives. It may outlive the
  // engine.
  [[nodiscard]] std::shared_ptr<const void> count_optimizer_bytes(size_t bytes);

  struct Impl;

 private:
  explicit ZeroEngine(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

class SHARDCOMM_EXPORT ZeroEngine::Ref {
 public:
  ZeroEngine& operator*() const noexcept;
  ZeroEngine* operator->() const noexcept { return &**this; }

 private:
  friend class ZeroEngine;
  explicit Ref(Impl* impl) noexcept : impl_(impl) {}
  Impl* impl_;
};

// before -> compute -> after as a scope. An error of the closing half surfaces in finish_step().
class SHARDCOMM_EXPORT UnitScope {
 public:
  static Result<UnitScope> enter(ZeroEngine& engine, UnitId unit, Pass pass, StreamRef compute);
  UnitScope(UnitScope&&) noexcept;
  UnitScope& operator=(UnitScope&&) = delete;
  ~UnitScope();
  std::span<const ParameterView> parameters() const;

 private:
  UnitScope(ZeroEngine* engine, UnitId unit, Pass pass, StreamRef compute) noexcept;
  ZeroEngine* engine_;
  UnitId unit_;
  Pass pass_;
  StreamRef compute_;
};

}  // namespace shardcomm
