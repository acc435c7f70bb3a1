// What a ZeroEngine is made of. README.md has the picture.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zero/context.h"
#include "zero/gradients.h"
#include "zero/masters.h"
#include "zero/schedule.h"
#include "zero/seals.h"
#include "zero/values.h"

namespace shardcomm {

struct ZeroEngine::Impl {
 public:
  using Fill = std::function<void(UnitId, uint32_t parameter, size_t offset, std::span<float> values)>;

  Impl(Communicator& communicator, std::span<const UnitSpec> units, const ZeroOptions& given, zero::Layout made,
       HostStream own);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // In engine_impl.cc.
  Status allocate();  // collective
  // Waits as ~ZeroEngine says. False: a stream may still use what this holds.
  bool drain() noexcept;
  std::span<const ParameterView> views(UnitId unit) const noexcept;
  UnitState state(UnitId unit) const noexcept;

  // In engine_hooks.cc.
  Status before(UnitId unit, Pass pass, StreamRef compute);
  Status after(UnitId unit, Pass pass, StreamRef compute);
  Status finish_step(StreamRef compute);

  // In engine_update.cc.
  Status fill_parameters(const Fill& fill);
  Status begin_update();
  Status publish(UnitId unit);
  Status publish();
  Status synchronize(Deadline deadline);
  Status zero_gradients();
  Result<double> gradient_norm();

  Communicator& comm;
  const std::vector<UnitSpec> specs;
  const ZeroOptions options;
  const zero::Layout layout;
  const std::shared_ptr<zero::MemoryAccount> account;  // shared with optimizers, which may be destroyed later
  std::vector<ShardPiece> pieces;
  bool sync = true;
  ZeroEngine* owner = nullptr;  // where it is now, for Ref

 private:
  struct UnitRun {
    std::vector<ParameterView> views;  // empty unless entered
    std::optional<Event> last_use;     // of its values, by a compute stream
    zero::StreamSpan span;
    bool published = false;  // in this update, if only as it was
  };

  void index_pieces();
  void index_piece(UnitId unit, uint32_t parameter, uint32_t bucket);
  void watch_memory();
  // The elements in one bucket of a parameter that this rank optimizes (stage 0: all), and those it holds the values of
  // (stages 0 to 2: all).
  std::optional<zero::Run> owned_run(const zero::ParameterPlace& place, uint32_t bucket) const;
  std::optional<zero::Run> held_run(const zero::ParameterPlace& place, uint32_t bucket) const;
  std::byte* value_at(const zero::ParameterPlace& place, uint32_t bucket, size_t bucket_offset) const;
  // Returns null if a value has no master of its own. `bucket_offset` is in this rank's part.
  float* master_at(const zero::ParameterPlace& place, uint32_t bucket, size_t bucket_offset) const;

  Status enter(UnitId unit, Pass pass, StreamRef compute);
  Status leave(UnitId unit, Pass pass, StreamRef compute);
  Status carry_out(std::span<const zero::Action> actions, StreamRef compute);
  void show(UnitId unit, Pass pass);
  void note_compute(StreamRef compute, const Event& end);
  // Values that are read in mosaics may change once every rank has come here.
  Status finish_reading();

  // Sets what this rank holds of a parameter in one bucket; fill(offset, values) as in fill_parameters.
  using FillOne = std::function<void(size_t offset, std::span<float> values)>;
  Status fill_run(const zero::ParameterPlace& place, uint32_t bucket, const FillOne& fill);
  Status round_filled(const zero::ParameterPlace& place, uint32_t bucket, size_t bucket_offset,
                      std::span<const float> wide);
  // Stages 1 and 2: enqueues the gather that the peers enqueue too.
  Status give_values(UnitId unit);
  // The same for all units not yet published: their peers wait for them, whatever this rank found.
  Status give_unpublished_values();
  // No unit is entered, no whole gradients wait to be reduced, and finish_step() has ended the step.
  Status check_gradients_final(std::string_view operation) const;
  // Nothing of this unit has been written that not even an update may write.
  Status check_written_rightly(UnitId unit) const;
  // Nothing that this rank owns has changed outside an update.
  Status check_untouched(std::string_view operation) const;
  Status written_outside(std::string_view operation, UnitId unit) const;  // the error
  // Everything enqueued so far, here and on the compute streams, has run, and without failure. A timeout leaves it as
  // it was; quiesce() takes one of the communicator for a failure.
  Status await_in_flight(Deadline deadline);
  Status quiesce();
  // quiesce(), and no unit is entered; values gathered ahead are dropped.
  Status prepare_to_change_values(std::string_view operation);

  Status usable() const { return failed_; }
  Status fail(Status status, std::string_view doing, UnitId unit);
  // kFailedPrecondition: "rank 1: begin_update: <cause>; <remedy>".
  Status refuse(std::string_view operation, std::string_view cause, std::string_view remedy) const;
  std::string unit_name(UnitId unit) const;

  HostStream stream_;
  zero::Context context_;
  const size_t gradient_capacity_;  // of the memory that whole gradients are borrowed from (stages 2 and 3)
  zero::Schedule schedule_;
  const zero::BucketOffsets trainable_offsets_;
  std::unique_ptr<zero::Values> values_;
  std::unique_ptr<zero::Gradients> gradients_;
  std::optional<zero::Masters> masters_;
  zero::Seals seals_;
  std::vector<UnitRun> runs_;
  std::vector<std::pair<void*, Event>> compute_ends_;  // latest point of each compute stream, by handle
  bool in_step_ = false;                               // a unit has been entered since the last finish_step()
  bool updating_ = false;                              // between begin_update() and publish()
  Status update_error_;                                // what publish(unit) found in this update, for publish()
  Status failed_;                                      // the first failure; the engine stays failed
  Status after_error_;                                 // for finish_step()
};

}  // namespace shardcomm
