// The choice among the rows of the registry: what is allowed, what it costs, and what was chosen before.
#include <fmt/format.h>

#include "base/check.h"
#include "collectives/collectives.h"

namespace shardcomm {
namespace {

// "direct" of "all_gather_many_direct".
std::string_view engine_of(std::string_view row) { return row.substr(row.rfind('_') + 1); }

Status unknown(std::string_view word) {
  std::string rows;
  for (const Algorithm& row : algorithms()) rows.append(", ").append(row.name);
  return Status(Code::kInvalidArgument, fmt::format("algorithm '{}' is none of inline, direct{}", word, rows));
}

size_t slot_of(const Workload& workload, size_t slots) noexcept {
  const uint64_t mixed = (workload.whole_bytes * 31 + workload.announced_bytes) * 0x9e3779b97f4a7c15;
  return (mixed >> 32 ^ static_cast<uint64_t>(workload.collective)) % slots;
}

}  // namespace

// Candidates, and the row that each is.
struct Chooser::Rows {
  static constexpr size_t kMost = 4;  // of one collective
  size_t count = 0;
  Candidate candidates[kMost];
  const Algorithm* rows[kMost];

  std::span<const Candidate> span() const noexcept { return {candidates, count}; }
  void add(const Algorithm& row) noexcept {
    SHARDCOMM_CHECK(count < kMost, "more rows of one collective than a choice has room for");
    candidates[count] = {row.name, row.cost};
    rows[count++] = &row;
  }
};

Result<Chooser> Chooser::create(Site site, std::string_view allowed) {
  Chooser chooser(std::move(site));
  while (!allowed.empty()) {
    const std::string_view word = allowed.substr(0, allowed.find(','));
    allowed.remove_prefix(std::min(allowed.size(), word.size() + 1));
    chooser.allowed_.resize(algorithms().size());
    bool known = false;
    for (size_t i = 0; i < algorithms().size(); ++i) {
      const std::string_view row = algorithms()[i].name;
      if (word != row && word != engine_of(row)) continue;
      chooser.allowed_[i] = known = true;
    }
    if (!known) return unknown(word);
  }
  return chooser;
}

Chooser::Rows Chooser::candidates(const Workload& workload) const noexcept {
  Rows all, allowed;
  for (size_t i = 0; i < algorithms().size(); ++i) {
    const Algorithm& row = algorithms()[i];
    if (row.collective != workload.collective) continue;
    all.add(row);
    if (allowed_.empty() || !allowed_[i]) continue;
    if (row.cost(workload, site_.topology, site_.machine).total_us() < INFINITY) allowed.add(row);
  }
  return allowed.count == 0 ? all : allowed;
}

const Algorithm& Chooser::choose(const Workload& workload) noexcept {
  Memory& memory = remembered_[slot_of(workload, remembered_.size())];
  if (memory.algorithm == nullptr || memory.workload != workload) {
    const Rows rows = candidates(workload);
    memory = {workload, rows.rows[shardcomm::choose(workload, site_, rows.span())]};
  }
  return *memory.algorithm;
}

CollectivePlan Chooser::explain(const Workload& workload) const {
  Workload agreed = workload;
  if (agreed.memory != SourceKind::kMosaic) agreed.memory = SourceKind::kMapped;
  const Rows rows = candidates(agreed);
  const size_t chosen = shardcomm::choose(agreed, site_, rows.span());
  CollectivePlan plan = explain_choice(agreed, site_, rows.span());
  plan.predicted_us = rows.candidates[chosen].cost(workload, site_.topology, site_.machine).total_us();
  plan.source = engine_of(plan.algorithm) == "inline" ? SourceKind::kInline : workload.memory;
  return plan;
}

}  // namespace shardcomm
