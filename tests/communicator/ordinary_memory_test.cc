// Ordinary memory of processes: attached or staged, by the machine's figures, of a tune file or measured.
#include <sys/uio.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

bool ranks_may_attach() {
  const SharedWords words;
  run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    if (rank.rank() == 0) {
      words[0] = getpid();
      words[1] = reinterpret_cast<int64_t>(&comm);
    }
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    if (rank.rank() == 1) {
      char byte = 0;
      const iovec to{&byte, 1}, from{reinterpret_cast<void*>(words[1].load()), 1};
      words[2] = process_vm_readv(static_cast<pid_t>(words[0].load()), &to, 1, &from, 1, 0) == 1 ? 1 : 0;
    }
    ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
  return words[2].load() == 1;
}

// By the machine's figures: of the tune file, or measured.
TEST(OrdinaryMemory, IsReadInTheFasterWay) {
  const auto reached = [](const std::string& options, SourceKind gathers, SourceKind reductions) {
    run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) {
      Communicator comm = rank.communicator(options);
      for (const SourceKind ordinary : {SourceKind::kAttached, SourceKind::kStaged}) {
        const Shape shape{Collective::kAllGather, size_t{1} << 24, DType::kF32, ordinary};
        EXPECT_EQ(name(comm.explain(shape).source), name(gathers)) << options;
        const Shape reduction{Collective::kReduceScatter, size_t{1} << 24, DType::kF32, ordinary};
        EXPECT_EQ(name(comm.explain(reduction).source), name(reductions)) << options;
      }
      EXPECT_EQ(comm.explain({Collective::kAllGather, size_t{1} << 24}).source, SourceKind::kMapped);
      EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    });
  };
  const std::string file = ::testing::TempDir() + "machine-" + std::to_string(getpid()) + ".json";
  const auto with_figures = [&](double attach_gbs, double staged_gbs) {
    MachineModel model;
    model.attach_gbs = attach_gbs;
    model.staged_gbs = staged_gbs;
    std::ofstream(file) << model.to_json();
    return "tune_file=" + file;
  };
  reached("memory_access=staging", SourceKind::kStaged, SourceKind::kStaged);
  reached(with_figures(3, 5) + ",copy_threads=1", SourceKind::kStaged, SourceKind::kStaged);
  const SourceKind where_allowed = ranks_may_attach() ? SourceKind::kAttached : SourceKind::kStaged;
  reached("memory_access=attach", where_allowed, where_allowed);
  reached("memory_access=attach_gathers", where_allowed, SourceKind::kStaged);
  reached(with_figures(5, 3), where_allowed, SourceKind::kStaged);
  reached(with_figures(3, 5) + ",copy_threads=2", where_allowed, SourceKind::kStaged);  // which attach, each a part
  reached(with_figures(3, 5) + ",copy_threads=1,staging_bytes=16384", where_allowed, where_allowed);  // small pieces
  reached(with_figures(3, 5) + ",memory_access=attach", where_allowed, where_allowed);
  std::filesystem::remove(file);
}

// By what the ranks measure where they meet, whatever half of it the file has.
TEST(OrdinaryMemory, IsMeasuredWhereTheTuneFileLacksAFigure) {
  const std::string file = ::testing::TempDir() + "machine-" + std::to_string(getpid()) + ".json";
  MachineModel neither;
  neither.cached_gbs = neither.memory_gbs = 1e6;  // so that nothing but the figures of ordinary memory counts
  MachineModel one = neither;
  one.attach_gbs = 1e5;
  std::ofstream(file) << neither.to_json();
  std::ofstream(file + ".one") << one.to_json();
  run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) {
    const auto predicted_us = [&](const std::string& options, SourceKind memory) {
      Communicator comm = rank.communicator(options);
      const double us = comm.explain({Collective::kAllGather, size_t{1} << 24, DType::kF32, memory}).predicted_us;
      EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
      return us;
    };
    const double measured_us = predicted_us("tune_file=" + file, SourceKind::kStaged);
    EXPECT_GT(measured_us, 10 * predicted_us("tune_file=" + file, SourceKind::kMapped));
    EXPECT_EQ(measured_us, predicted_us("tune_file=" + file + ".one", SourceKind::kStaged));
  });
  std::filesystem::remove(file);
  std::filesystem::remove(file + ".one");
}

}  // namespace
}  // namespace shardcomm::testing
