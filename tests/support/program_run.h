// One rank's side of a random program (program.h): it makes the calls, on several streams, and compares its memory with
// the model's whenever all is quiet.
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/rank_group.h"

namespace shardcomm::testing {

// Errors of the library are exceptions; wrong bytes are failures of the test, and end the program.
class ProgramRun {
 public:
  ProgramRun(RankContext& rank, uint64_t seed, std::string_view options);
  void run(size_t steps);

 private:
  // Who has last written a buffer, and who has read it since.
  struct Use {
    Work writer;
    std::vector<Work> readers;
  };
  // What a member passes to a call.
  struct Arguments {
    std::byte *in, *out;
    size_t members, me;
  };
  static constexpr size_t kMostInFlight = 64;

  void fill_here(const Step& step);
  void call(const Step& step);
  Result<Work> make_call(const Step& step, const Arguments& given, StreamRef stream);
  Result<Work> make_collective_call(const Step& step, const Arguments& given, StreamRef stream);
  Result<Work> make_ragged_call(const Step& step, const Arguments& given, StreamRef stream);
  Result<Work> make_many_call(const Step& step, const Arguments& given, StreamRef stream);
  StreamRef stream_of(const Step& step) const;
  Use& use_of(const Step& step, const Place& place);
  void order(const Work& work, StreamRef stream) const;
  void settle(size_t left);
  bool compare(const Step& last);

  const Rank rank_;
  Program program_;
  ProgramModel model_;
  std::vector<std::optional<Communicator>> groups_;  // by grouping
  Window window_;
  ProgramMemory memory_;
  std::vector<HostStream> streams_;
  std::array<std::array<Use, Program::kBuffers>, kDTypeCount> uses_;
  std::deque<Work> in_flight_;
};

}  // namespace shardcomm::testing
