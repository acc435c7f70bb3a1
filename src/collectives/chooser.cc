// The choice among the rows of the registry: what is allowed, what it costs, and what was chosen before.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "collectives/chooser.h"

namespace shardcomm {
namespace {

Status unsupported(Execution& execution) {
  return Status(Code::kUnsupported,
                fmt::format("no algorithm can run {} on transport {}", text(execution.operation.call(), {}),
                            execution.fabric.transport->name()));
}

// Chosen where the registry has nothing.
constexpr Engine kNoEngine{"none", std::nullopt, unsupported};
constexpr Algorithm kNoAlgorithm{Collective::kBarrier, &kNoEngine, nullptr};

CollectivePlan no_plan() {
  CollectivePlan plan;
  plan.algorithm = kNoEngine.name;
  plan.predicted_us = INFINITY;
  plan.reason = "no algorithm can run this here";
  return plan;
}

bool is_named(const Algorithm& row, std::string_view word) { return word == row.engine->name || word == name(row); }

Status unknown(std::string_view word) {
  std::vector<std::string> known;
  for (const Algorithm& row : algorithms()) {
    if (std::find(known.begin(), known.end(), row.engine->name) == known.end()) known.emplace_back(row.engine->name);
  }
  for (const Algorithm& row : algorithms()) known.push_back(name(row));
  return Status(Code::kInvalidArgument, fmt::format("algorithm '{}' is none of {}", word, fmt::join(known, ", ")));
}

Result<std::vector<std::string_view>> parse_allowed(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const auto rows = algorithms();
    if (std::none_of(rows.begin(), rows.end(), [&](const Algorithm& row) { return is_named(row, word); }))
      return unknown(word);
    words.push_back(word);
  }
  return words;
}

size_t slot_of(const Workload& workload, size_t slots) noexcept {
  const uint64_t shape[] = {static_cast<uint64_t>(workload.collective), workload.whole_bytes, workload.announced_bytes};
  return hash_bytes(shape, sizeof shape) % slots;
}

}  // namespace

void Chooser::Rows::add(const Algorithm& row) {
  algorithms.push_back(&row);
  candidates.push_back({row.engine->name, row.cost});
}

Result<Chooser> Chooser::create(Site site, TransportKind transport, std::string_view allowed) {
  SHARDCOMM_TRY_ASSIGN(const auto words, parse_allowed(allowed));
  Chooser chooser(std::move(site));
  for (const Algorithm& row : algorithms()) {
    if (row.engine->needs.value_or(transport) != transport) continue;
    const auto collective = static_cast<size_t>(row.collective);
    chooser.all_[collective].add(row);
    const bool is_allowed = std::any_of(words.begin(), words.end(), [&](auto word) { return is_named(row, word); });
    if (is_allowed) chooser.allowed_[collective].add(row);
  }
  return chooser;
}

const Chooser::Rows& Chooser::candidates(const Workload& workload) const noexcept {
  const auto collective = static_cast<size_t>(workload.collective);
  const bool can_run = shardcomm::choose(workload, site_, allowed_[collective].candidates).has_value();
  return can_run ? allowed_[collective] : all_[collective];
}

const Algorithm& Chooser::choose(const Workload& workload) noexcept {
  Memory& memory = remembered_[slot_of(workload, remembered_.size())];
  if (memory.algorithm == nullptr || memory.workload != workload) {
    const Rows& rows = candidates(workload);
    const auto best = shardcomm::choose(workload, site_, rows.candidates);
    memory = {workload, best ? rows.algorithms[*best] : &kNoAlgorithm};
  }
  return *memory.algorithm;
}

CollectivePlan Chooser::explain(const Workload& workload) const {
  if (!is_valid(workload.collective)) return no_plan();
  Workload agreed = workload;
  if (agreed.memory != SourceKind::kMosaic) agreed.memory = SourceKind::kMapped;
  const Rows& rows = candidates(agreed);
  const auto best = shardcomm::choose(agreed, site_, rows.candidates);
  if (!best) return no_plan();
  CollectivePlan plan = explain_choice(agreed, site_, rows.candidates, *best);
  plan.predicted_us = rows.candidates[*best].cost(workload, site_.topology, site_.machine).total_us();
  plan.source = rows.algorithms[*best]->engine->needs ? workload.memory : SourceKind::kInline;
  return plan;
}

}  // namespace shardcomm
