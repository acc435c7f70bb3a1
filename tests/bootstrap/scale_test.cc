// A thousand ranks meet in seconds. By default fewer, to be quick: bootstrap_scale_test --ranks=1024.
#include <gtest/gtest.h>

#include <cstdio>
#include <mutex>

#include "bootstrap/bootstrap.h"
#include "tests/bootstrap/meeting.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;

int ranks = 128;
constexpr auto kLimit = 10s;  // for any number up to 1,024, on two cores

void meet(const std::string& uri) {
  const Deadline start = std::chrono::steady_clock::now();
  std::mutex mutex;
  std::string first_failure;
  const std::string blob(256, 'b');  // what a rank's address and topology take
  as_threads(ranks, [&](Rank rank) {
    const auto store = open_or_die(uri);
    Options options = quick_options();
    options.init_timeout = 60s;
    Status status = store->join(rank, ranks, options);
    if (status.ok()) status = bootstrap::exchange(*store, "addresses", rank, ranks, blob, in(60s)).status();
    if (status.ok()) status = bootstrap::agree(*store, "version", rank, ranks, "the version", "0.1", in(60s));
    const std::lock_guard lock(mutex);
    if (!status.ok() && first_failure.empty()) first_failure = std::to_string(rank) + ": " + status.to_string();
  });
  EXPECT_EQ(first_failure, "");
  EXPECT_LT(since(start), kLimit);
  std::printf("%d ranks met over %s in %lld ms\n", ranks, uri.c_str(), static_cast<long long>(since(start).count()));
}

TEST(Scale, ThreadsMeetOverTcp) { meet(tcp_uri(free_port())); }
TEST(Scale, ThreadsMeetInOneProcess) { meet("local://scale"); }
TEST(Scale, ThreadsMeetInADirectory) {
  const TemporaryDirectory directory;
  ranks = std::min(ranks, 32);  // it polls: not made for more than tens
  meet("file://" + directory.path());
}

}  // namespace

void set_ranks(int count) { ranks = count; }

}  // namespace shardcomm

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    int count = 0;
    if (std::sscanf(argv[i], "--ranks=%d", &count) == 1 && count > 1) shardcomm::set_ranks(count);
  }
  return RUN_ALL_TESTS();
}
