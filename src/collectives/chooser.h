// Chooses the row of the registry that carries out an operation.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "collectives/registry.h"
#include "planner/planner.h"

namespace shardcomm {

// Chooses rows for one communicator, the same on every rank, and remembers by shape. One operation at a time.
class Chooser {
 public:
  // Candidates are the rows that `transport` can run. `allowed`: engines ("direct") or names of rows, separated by
  // commas; the others are candidates only where none of these can run, or when it is empty. kInvalidArgument lists
  // what there is.
  static Result<Chooser> create(Site site, TransportKind transport, std::string_view allowed);
  // Allocates nothing. Where no row can run it: one that fails with kUnsupported.
  const Algorithm& choose(const Workload& workload) noexcept;
  CollectivePlan explain(const Workload& workload) const;

 private:
  struct Memory {
    Workload workload;
    const Algorithm* algorithm = nullptr;
  };
  // Rows of one collective, as the planner takes them.
  struct Rows {
    std::vector<const Algorithm*> algorithms;
    std::vector<Candidate> candidates;  // the same
    void add(const Algorithm& row);
  };
  explicit Chooser(Site site) : site_(std::move(site)) {}
  const Rows& candidates(const Workload& workload) const noexcept;

  Site site_;
  std::array<Rows, kCollectiveCount> all_, allowed_;  // allowed_ is empty where everything is allowed
  std::array<Memory, 16> remembered_;                 // by a hash of the shape
};

}  // namespace shardcomm
