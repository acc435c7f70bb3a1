// Ranks of different versions or builds, made by changing what one of them says of itself: the same named error on
// every rank, at once, instead of some that fail and others that wait.
#include <gtest/gtest.h>

#include "bootstrap/bootstrap.h"
#include "core/connection.h"
#include "tests/bootstrap/meeting.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;

constexpr int kRanks = 4;

// One blob of one rank, on its way to the others.
struct Tampering {
  std::string_view step;
  Rank rank;
  std::function<std::string(std::string)> change;
};

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// What connecting gives on each rank. All must be told alike and soon.
Status connect_all(const Tampering& tampering) {
  static int meetings = 0;
  const std::string uri = "local://skew-" + std::to_string(meetings++);
  std::vector<Status> statuses(kRanks);
  const Deadline start = std::chrono::steady_clock::now();
  as_threads(kRanks, [&](Rank rank) {
    const auto store = join_or_fail(uri, rank, kRanks, quick_options());
    const Exchange exchange = [&](std::string_view step, std::string_view blob) {
      std::string mine(blob);
      if (step == tampering.step && rank == tampering.rank) mine = tampering.change(std::move(mine));
      return bootstrap::exchange(*store, step, rank, kRanks, mine, in(10s));
    };
    const auto connection =
        connect_ranks({.rank = rank, .size = kRanks, .device = {}}, quick_options(), in(10s), {.exchange = exchange});
    statuses[static_cast<size_t>(rank)] = connection.status();
  });
  EXPECT_LT(since(start), 3s);
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), statuses[0].code());
    EXPECT_EQ(status.message(), statuses[0].message());
  }
  return statuses[0];
}

TEST(Skew, DifferentVersionsFailAllRanksAlike) {
  for (const Rank odd : {0, 2}) {
    std::string own;
    const Status status = connect_all({"protocol", odd, [&](std::string blob) {
                                         const size_t at = blob.find("version ") + 8;
                                         own = "version " + blob.substr(at, blob.find(' ', at) - at);
                                         return replaced(std::move(blob), own, "version 9.8.7");
                                       }});
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_TEXT(status, "version 9.8.7");
    EXPECT_TEXT(status, own + " ");
    EXPECT_TEXT(status, "rank " + std::to_string(odd));
  }
}

// Builds of one version that lay out shared memory differently.
TEST(Skew, DifferentControlLayoutsFailAllRanksAlike) {
  const Status status = connect_all({"protocol", 1, [](std::string blob) {
                                       const std::string own = "control_layout " + std::to_string(kControlLayout);
                                       return replaced(std::move(blob), own, "control_layout 77");
                                     }});
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TEXT(status, "control_layout 77");
  EXPECT_TEXT(status, "rank 1");
}

// Whatever a rank allows that others do not: both lists are shown.
TEST(Skew, DifferentTransportsShowBothLists) {
  const Status status = connect_all({"protocol", 3, [](std::string blob) {
                                       return replaced(std::move(blob), "transports auto", "transports ib,ucx");
                                     }});
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TEXT(status, "transports auto");
  EXPECT_TEXT(status, "transports ib,ucx");
  EXPECT_TEXT(status, "rank 3");
}

// Cards that mean nothing here, or come in another shape.
TEST(Skew, MalformedCardsFailAllRanksAlike) {
  const Status cut = connect_all({"cards", 2, [](std::string blob) { return blob.substr(0, blob.size() - 3); }});
  EXPECT_EQ(cut.code(), Code::kFailedPrecondition);
  EXPECT_TEXT(cut, "another shape");
  const Status longer = connect_all({"cards", 2, [](std::string blob) { return blob + "more"; }});
  EXPECT_EQ(longer.code(), Code::kFailedPrecondition);
  const Status empty = connect_all({"connected", 0, [](std::string) { return std::string(); }});
  EXPECT_EQ(empty.code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace shardcomm
