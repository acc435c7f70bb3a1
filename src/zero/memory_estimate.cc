#include "zero/memory_estimate.h"

#include <fmt/format.h>

#include <limits>

#include "base/check.h"
#include "base/text.h"
#include "zero/arena.h"
#include "zero/memory_account.h"
#include "zero/schedule.h"

namespace shardcomm::zero {
namespace {

// Carries out actions on an account and two arenas.
class Rehearsal {
 public:
  Rehearsal(const Layout& layout, const ZeroOptions& options, size_t gathered_capacity, size_t gradient_capacity)
      : layout_(layout),
        options_(options),
        schedule_(layout, options),
        gathered_(gathered_capacity, layout.units.size()),
        gradients_(gradient_capacity, layout.units.size()) {
    const Footprint fixed = footprint_of(layout);
    account_.add(Purpose::kParameters, fixed.values_bytes);
    account_.add(Purpose::kGradients, fixed.whole_gradient_bytes + fixed.sum_bytes);
    account_.add(Purpose::kOptimizer, fixed.master_bytes + fixed.moment_bytes);
  }

  // Counts in `run`; sizes the arenas lacked are in gathered_lack and gradient_lack.
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

  size_t gathered_lack() const { return gathered_.lack; }
  size_t gradient_lack() const { return gradients_.lack; }
  size_t gathered_peak() const { return gathered_.peak; }
  size_t gradient_peak() const { return gradients_.peak; }

 private:
  struct Pool {
    Pool(size_t capacity, size_t units) : arena(capacity), offsets(units) {}
    void allocate(UnitId unit, size_t bytes) {
      used += bytes;
      peak = std::max(peak, used);
      offsets[unit] = arena.allocate(bytes);
      if (!offsets[unit] && lack == 0) lack = bytes;
    }
    void release(UnitId unit, size_t bytes) {
      used -= bytes;
      if (offsets[unit]) arena.release(*offsets[unit]);
      offsets[unit].reset();
    }
    Arena arena;
    std::vector<std::optional<size_t>> offsets;
    size_t used = 0, peak = 0, lack = 0;
  };

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
    const bool pooled = options_.stage >= 2;
    for (const auto& [kind, unit] : actions) {
      const UnitLayout& layout = layout_.units[unit];
      if (kind == Kind::kGather) {
        gathered_.allocate(unit, layout.value_bytes);
        account_.add(Purpose::kGathered, layout.value_bytes);
        ++run.gather_count;
        run.gather_bytes_sent += gather_bytes_sent(layout_, unit);
      } else if (kind == Kind::kFree) {
        gathered_.release(unit, layout.value_bytes);
        account_.remove(Purpose::kGathered, layout.value_bytes);
      } else if (kind == Kind::kOpen && pooled) {
        gradients_.allocate(unit, layout.gradient_bytes);
        account_.add(Purpose::kUnreduced, layout.gradient_bytes);
      } else if (kind == Kind::kRetire && pooled) {
        gradients_.release(unit, layout.gradient_bytes);
        account_.remove(Purpose::kUnreduced, layout.gradient_bytes);
      } else if (kind == Kind::kReduce) {
        run.reduce_bytes_sent += reduce_bytes_sent(layout_, unit);
      }
    }
  }

  const Layout& layout_;
  const ZeroOptions& options_;
  Schedule schedule_;
  MemoryAccount account_;
  Pool gathered_;
  Pool gradients_;
};

}  // namespace

DryRun dry_run(const Layout& layout, const ZeroOptions& options) {
  constexpr size_t kEndless = std::numeric_limits<size_t>::max() / 2;
  DryRun run;
  Rehearsal sizes(layout, options, kEndless, kEndless);
  sizes.step(run);
  size_t gathered = sizes.gathered_peak();
  size_t gradient = sizes.gradient_peak();
  // Fragmentation may ask for more than the peak; a few rounds find how much. What is still lacking then has memory of
  // its own when it is needed.
  for (int round = 0; round < 16; ++round) {
    DryRun ignored;
    Rehearsal attempt(layout, options, gathered, gradient);
    attempt.step(ignored);
    if (attempt.gathered_lack() == 0 && attempt.gradient_lack() == 0) break;
    gathered += attempt.gathered_lack();
    gradient += attempt.gradient_lack();
  }
  run.gathered_capacity = gathered;
  run.gradient_capacity = gradient;
  return run;
}

}  // namespace shardcomm::zero

namespace shardcomm {

Result<ZeroEstimate> estimate_zero(std::span<const UnitSpec> units, int world_size, const ZeroOptions& options) {
  SHARDCOMM_TRY_ASSIGN(const zero::Layout layout, zero::make_layout(units, world_size, options));
  const zero::DryRun run = zero::dry_run(layout, options);
  const size_t total = run.gather_bytes_sent + run.reduce_bytes_sent + run.publish_bytes_sent;
  std::string parts;
  const auto add = [&](std::string_view what, size_t bytes) {
    if (bytes != 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : " + ", what, readable_bytes(bytes));
  };
  add(fmt::format("{} gathers of units", run.gather_count), run.gather_bytes_sent);
  add(options.stage == 0 ? "all-reduce of gradients" : "reduce-scatter of gradients", run.reduce_bytes_sent);
  add("all-gather of new parameters", run.publish_bytes_sent);
  return ZeroEstimate{
      .peak_bytes = run.peak_bytes,
      .bytes_per_step = total,
      .parameter_count = layout.parameter_count,
      .formula = fmt::format("stage {}, {} ranks, each to {} peers its 1/{}: {} = {}", options.stage, world_size,
                             world_size - 1, world_size, parts.empty() ? "nothing" : parts, readable_bytes(total))};
}

}  // namespace shardcomm
