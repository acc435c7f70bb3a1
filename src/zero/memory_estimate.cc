#include "zero/memory_estimate.h"

#include <fmt/format.h>

#include <limits>

#include "base/check.h"
#include "zero/arena.h"
#include "zero/memory_account.h"
#include "zero/schedule.h"

namespace shardcomm::zero {
namespace {

// Carries out actions on an account.
class Rehearsal {
 public:
  Rehearsal(const Layout& layout, const ZeroOptions& options, size_t gradient_capacity)
      : layout_(layout), schedule_(layout, options, gradient_capacity) {
    run_.gradient_capacity = gradient_capacity;
    const Footprint fixed = footprint_of(layout);
    account_.add(Purpose::kParameters, fixed.values_bytes + fixed.mosaic_bytes);
    account_.add(Purpose::kGradients, fixed.whole_gradient_bytes + fixed.sum_bytes);
    account_.add(Purpose::kOptimizer, fixed.master_bytes + fixed.moment_bytes);
  }

  DryRun step() && {
    const auto units = static_cast<UnitId>(layout_.units.size());
    for (UnitId u = 0; u < units; ++u) use(u, Pass::kForward);
    for (UnitId u = units; u-- > 0;) use(u, Pass::kBackward);
    std::vector<Action> actions;
    expect(schedule_.finish(true, actions));
    carry_out(actions);
    for (UnitId u = 0; u < units; ++u) run_.publish_bytes_sent += publish_bytes_sent(layout_, u);
    run_.peak_bytes = account_.report().peak_bytes;
    return run_;
  }

 private:
  static void expect(const Status& status) { SHARDCOMM_CHECK(status.ok(), "the declared order is a legal one"); }

  void use(UnitId unit, Pass pass) {
    std::vector<Action> actions;
    expect(schedule_.before(unit, pass, actions));
    carry_out(actions);
    actions.clear();
    expect(schedule_.after(unit, pass, true, actions));
    carry_out(actions);
  }

  void carry_out(const std::vector<Action>& actions) {
    using Kind = Action::Kind;
    const bool pooled = layout_.stage.shards_gradients;
    for (const auto& [kind, unit, index] : actions) {
      const UnitLayout& layout = layout_.units[unit];
      if (kind == Kind::kGather) {
        const Transfer& transfer = layout.value_transfers[index];
        gathered_bytes_[unit] += transfer.bytes;
        account_.add(Purpose::kGathered, transfer.bytes);
        ++run_.gather_count;
        run_.gather_bytes_sent += gather_bytes_sent(layout_, unit, transfer);
      } else if (kind == Kind::kFree) {
        account_.remove(Purpose::kGathered, std::exchange(gathered_bytes_[unit], 0));
      } else if (kind == Kind::kOpen && pooled) {
        open_gradients(unit);
      } else if (kind == Kind::kRetire && pooled) {
        account_.remove(Purpose::kUnreduced, layout.gradient_transfers[index].bytes);
      } else if (kind == Kind::kReduce) {
        run_.reduce_bytes_sent += reduce_bytes_sent(layout_, unit, layout.gradient_transfers[index]);
      }
    }
  }

  void open_gradients(UnitId unit) {
    const size_t bytes = layout_.units[unit].gradient_bytes;
    account_.add(Purpose::kUnreduced, bytes);
    run_.unreduced_peak_bytes = std::max(run_.unreduced_peak_bytes, account_.report().unreduced_bytes);
    if (!schedule_.gradient_offset(unit) && run_.gradient_lack_bytes == 0) run_.gradient_lack_bytes = bytes;
  }

  const Layout& layout_;
  Schedule schedule_;
  MemoryAccount account_;
  std::vector<size_t> gathered_bytes_ = std::vector<size_t>(layout_.units.size());
  DryRun run_;
};

// The capacity of an arena in which nothing lacks room.
constexpr size_t kEndless = std::numeric_limits<size_t>::max() / 2;

}  // namespace

DryRun dry_run(const Layout& layout, const ZeroOptions& options) {
  DryRun run = Rehearsal(layout, options, kEndless).step();
  // Fragmentation may ask for more than the peak; a few rounds find how much. What is still lacking then has memory of
  // its own when it is needed.
  for (int round = 0; round < 16; ++round) {
    const size_t capacity = round == 0 ? run.unreduced_peak_bytes : run.gradient_capacity + run.gradient_lack_bytes;
    run = Rehearsal(layout, options, capacity).step();
    if (run.gradient_lack_bytes == 0) break;
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
  add(fmt::format("{} gathers", run.gather_count), run.gather_bytes_sent);
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
