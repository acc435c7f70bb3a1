// What a ZeroEngine is made of. README.md has the picture.
#pragma once
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "zero/context.h"
#include "zero/gradients.h"
#include "zero/memory_estimate.h"
#include "zero/schedule.h"
#include "zero/values.h"

namespace shardcomm {

struct ZeroEngine::Impl {
  // What a ShardPiece has besides: its place in arrays over everything owned and trainable, and its f32 master where
  // the value is bf16 and trainable.
  struct PieceIndex {
    size_t trainable_offset;
    float* master;
  };
  struct UnitRun {
    std::vector<ParameterView> views;  // empty unless entered
    std::optional<Event> last_use;     // of its values, by a compute stream
    zero::StreamSpan span;
  };

  Impl(Communicator& communicator, std::span<const UnitSpec> units, const ZeroOptions& given, zero::Layout made,
       HostStream own);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  Status allocate();  // collective
  void index_pieces();
  // The elements that this rank optimizes (stage 0: all), and those it holds the values of (stages 0 to 2: all).
  std::optional<zero::Run> owned_run(const zero::ParameterPlace& place) const;
  std::optional<zero::Run> held_run(const zero::ParameterPlace& place) const;
  std::byte* value_at(const zero::ParameterPlace& place, size_t bucket_offset) const;
  float* master_at(const zero::ParameterPlace& place,
                   size_t bucket_offset) const;  // null where the value is the master

  Status carry_out(std::span<const zero::Action> actions, StreamRef compute);
  void show(UnitId unit, Pass pass);
  Status usable() const { return failed; }
  Status fail(Status status, std::string_view doing, UnitId unit);
  void note_compute(StreamRef compute, const Event& end);
  // Values that are read in mosaics may change once every rank has come here.
  Status finish_reading();
  // No unit is open, and no whole gradients wait to be reduced.
  Status check_gradients_final(std::string_view caller) const;

  // Everything enqueued so far, here and on the compute streams, has run, and without failure.
  Status quiesce();
  // quiesce(), and nothing is between before() and after(); values gathered ahead are dropped.
  Status prepare_to_change_values();
  Status zero_gradients();

  Communicator& comm;
  const std::vector<UnitSpec> specs;
  const ZeroOptions options;
  const zero::Layout layout;
  const std::shared_ptr<zero::MemoryAccount> account;  // shared with the optimizer, which may be destroyed later
  HostStream stream;
  zero::Context context;
  zero::Schedule schedule;
  std::unique_ptr<zero::Values> values;
  std::unique_ptr<zero::Gradients> gradients;
  const zero::BucketOffsets trainable_offsets;
  const zero::BucketOffsets master_offsets;
  zero::Buffer masters;
  std::vector<UnitRun> runs;
  std::vector<ShardPiece> pieces;
  std::vector<PieceIndex> piece_indices;              // of pieces
  std::vector<std::pair<void*, Event>> compute_ends;  // latest point of each compute stream, by handle
  bool sync = true;
  Status failed;       // the first failure; the engine stays failed
  Status after_error;  // for finish_step
};

}  // namespace shardcomm
