#include "zero/memory_estimate.h"

#include <fmt/format.h>

#include <limits>

#include "base/check.h"
#include "zero/arena.h"
#include "zero/memory_account.h"
#include "zero/schedule.h"

namespace shardcomm::zero {
namespace {

// Carries out actions on an account and an arena.
class Rehearsal {
 public:
  Rehearsal(const Layout& layout, const ZeroOptions& options, size_t gradient_capacity)
      : layout_(layout), schedule_(layout, options), arena_(gradient_capacity), gradient_offsets_(layout.units.size()) {
    const Footprint fixed = footprint_of(layout);
    account_.add(Purpose::kParameters, fixed.values_bytes + fixed.mosaic_bytes);
    account_.add(Purpose::kGradients, fixed.whole_gradient_bytes + fixed.sum_bytes);
    account_.add(Purpose::kOptimizer, fixed.master_bytes + fixed.moment_bytes);
  }

  void step(DryRun& run) {
    const auto units = static_cast<UnitId>(layout_.units.size());
    for (UnitId u = 0; u < units; ++u) use(u, Pass::kForward, run);
    for (UnitId u = units; u-- > 0;) use(u, Pass::kBackward, run);
    std::vector<Action> actions;
    expect(schedule_.finish(true, actions));
    carry_out(actions, run);
    for (UnitId u = 0; u < units; ++u) run.publish_bytes_sent += publish_bytes_sent(layout_, u);
    run.peak_bytes = account_.report().peak_bytes;
  }

  // Of the first whole gradients that the arena had no room for; 0: it had room for all.
  size_t lack_bytes() const { return lack_bytes_; }
  size_t gradient_peak_bytes() const { return gradient_peak_bytes_; }

 private:
  void open_gradients(UnitId unit) {
    const size_t bytes = layout_.units[unit].gradient_bytes;
    account_.add(Purpose::kUnreduced, bytes);
    gradient_peak_bytes_ = std::max(gradient_peak_bytes_, account_.report().unreduced_bytes);
    gradient_offsets_[unit] = arena_.allocate(bytes);
    if (!gradient_offsets_[unit] && lack_bytes_ == 0) lack_bytes_ = bytes;
  }

  void retire_gradients(UnitId unit) {
    account_.remove(Purpose::kUnreduced, layout_.units[unit].gradient_bytes);
    if (gradient_offsets_[unit]) arena_.release(*std::exchange(gradient_offsets_[unit], std::nullopt));
  }

  static void expect(const Status& status) { SHARDCOMM_CHECK(status.ok(), "the declared order is a legal one"); }

  void use(UnitId unit, Pass pass, DryRun& run) {
    std::vector<Action> actions;
    expect(schedule_.before(unit, pass, actions));
    carry_out(actions, run);
    actions.clear();
    expect(schedule_.after(unit, pass, true, actions));
    carry_out(actions, run);
  }

  void carry_out(const std::vector<Action>& actions, DryRun& run) {
    using Kind = Action::Kind;
    const bool pooled = layout_.stage.shards_gradients;
    for (const auto& [kind, unit] : actions) {
      const UnitLayout& layout = layout_.units[unit];
      if (kind == Kind::kGather) {
        account_.add(Purpose::kGathered, layout.value_bytes);
        ++run.gather_count;
        run.gather_bytes_sent += gather_bytes_sent(layout_, unit);
      } else if (kind == Kind::kFree) {
        account_.remove(Purpose::kGathered, layout.value_bytes);
      } else if (kind == Kind::kOpen && pooled) {
        open_gradients(unit);
      } else if (kind == Kind::kRetire && pooled) {
        retire_gradients(unit);
      } else if (kind == Kind::kReduce) {
        run.reduce_bytes_sent += reduce_bytes_sent(layout_, unit);
      }
    }
  }

  const Layout& layout_;
  Schedule schedule_;
  MemoryAccount account_;
  Arena arena_;
  std::vector<std::optional<size_t>> gradient_offsets_;
  size_t gradient_peak_bytes_ = 0;
  size_t lack_bytes_ = 0;
};

}  // namespace

DryRun dry_run(const Layout& layout, const ZeroOptions& options) {
  DryRun run;
  Rehearsal endless(layout, options, std::numeric_limits<size_t>::max() / 2);
  endless.step(run);
  run.gradient_capacity = endless.gradient_peak_bytes();
  // Fragmentation may ask for more than the peak; a few rounds find how much. What is still lacking then has memory of
  // its own when it is needed.
  for (int round = 0; round < 16; ++round) {
    DryRun ignored;
    Rehearsal attempt(layout, options, run.gradient_capacity);
    attempt.step(ignored);
    if (attempt.lack_bytes() == 0) break;
    run.gradient_capacity += attempt.lack_bytes();
  }
  return run;
}

}  // namespace shardcomm::zero

namespace shardcomm {

Result<ZeroEstimate> estimate_zero(std::span<const UnitSpec> units, int world_size, const ZeroOptions& options) {
  SHARDCOMM_TRY_ASSIGN(const zero::Layout layout, zero::make_layout(units, world_size, options));
  const zero::DryRun run = zero::dry_run(layout, options);
  const size_t total = run.gather_bytes_sent + run.reduce_bytes_sent + run.publish_bytes_sent;
  std::string parts;
  const auto add = [&](const std::string& what, size_t bytes) {
    if (bytes != 0) parts += fmt::format("{}{} ({})", parts.empty() ? "" : " + ", bytes, what);
  };
  add(fmt::format("{} gathers of units", run.gather_count), run.gather_bytes_sent);
  add(layout.stage.shards_updates ? "reduce-scatter of gradients" : "all-reduce of gradients", run.reduce_bytes_sent);
  add("all-gather of new parameters", run.publish_bytes_sent);
  return ZeroEstimate{
      .peak_bytes = run.peak_bytes,
      .bytes_per_step = total,
      .parameter_count = layout.parameter_count,
      .formula = fmt::format("stage {}, {} ranks, each sending to {} peers: {} = {} bytes", options.stage, world_size,
                             world_size - 1, parts.empty() ? "nothing" : parts, total)};
}

}  // namespace shardcomm
