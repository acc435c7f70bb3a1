// URIs, and what launchers say in the environment.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/bootstrap/meeting.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;

// An environment without any launcher's variables, but with these.
class Environment {
 public:
  explicit Environment(std::vector<std::pair<const char*, const char*>> variables) {
    for (const char* name : kAll) unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  ~Environment() {
    for (const char* name : kAll) unsetenv(name);
  }

 private:
  static constexpr const char* kAll[] = {"RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_RANK",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "SLURM_PROCID",
                                         "SLURM_NTASKS",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "MPI_LOCALRANKID",
                                         "SLURM_LOCALID",
                                         "OMPI_COMM_WORLD_LOCAL_RANK"};
};

void expect_place(const Result<LaunchedRank>& place, Rank rank, int world_size, Rank local_rank) {
  ASSERT_TRUE(place.ok()) << place.status().to_string();
  EXPECT_EQ(place.value().rank, rank);
  EXPECT_EQ(place.value().world_size, world_size);
  EXPECT_EQ(place.value().local_rank, local_rank);
}

TEST(OpenStore, BadUrisListTheValidOnes) {
  for (const char* uri : {"",
                          "tcp",
                          "http://host:80",
                          "tcp://",
                          "tcp://host",
                          "tcp://host:",
                          "tcp://:80",
                          "tcp://host:0",
                          "tcp://host:65536",
                          "tcp://host:80x",
                          "tcp://host:-1",
                          "tcp://::1:80",
                          "tcp://[::1]",
                          "tcp://host:80/x",
                          "tcp://[]:80",
                          "file://",
                          "file://relative/path",
                          "file:///",
                          "local://",
                          "env://x",
                          "TCP://host:80"}) {
    const auto opened = open_store(uri);
    EXPECT_EQ(opened.status().code(), Code::kInvalidArgument) << uri;
    EXPECT_TEXT(opened.status(), "tcp://host:port, file:///directory, local://name or env://");
    EXPECT_TEXT(opened.status(), std::string("'") + uri + "'");
  }
}

TEST(OpenStore, GoodUrisOpenWithoutTouchingAnything) {
  for (const char* uri : {"tcp://host:1", "tcp://127.0.0.1:65535", "tcp://[::1]:80", "tcp://[fe80::1%eth0]:80",
                          "file:///nowhere/at/all", "file:///nowhere/", "local://x", "local://any name/at all"}) {
    EXPECT_TRUE(open_store(uri).ok()) << uri;
  }
  EXPECT_FALSE(std::filesystem::exists("/nowhere"));
}

TEST(LaunchedRank, IsReadFromEveryLauncher) {
  {
    const Environment e({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}});
    expect_place(LaunchedRank::from_env(), 3, 8, 1);
  }
  {
    const Environment e(
        {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
    expect_place(LaunchedRank::from_env(), 2, 4, 0);
  }
  {
    const Environment e({{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "2"}});
    expect_place(LaunchedRank::from_env(), 5, 6, 2);
  }
  {
    const Environment e({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}});
    expect_place(LaunchedRank::from_env(), 1, 2, 1);
  }
}

TEST(LaunchedRank, WithoutLocalRankItIsTheRank) {
  const Environment e({{"RANK", "3"}, {"WORLD_SIZE", "8"}});
  expect_place(LaunchedRank::from_env(), 3, 8, 3);
}

TEST(LaunchedRank, MpirunInsideSlurmIsBelievedFirst) {
  const Environment e(
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  expect_place(LaunchedRank::from_env(), 2, 4, 2);
}

TEST(LaunchedRank, HalfALauncherIsPassedOverForAWholeOne) {
  const Environment e({{"RANK", "7"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  expect_place(LaunchedRank::from_env(), 1, 2, 1);
}

TEST(LaunchedRank, ErrorsNameTheVariable) {
  {
    const Environment e({});
    const Status status = LaunchedRank::from_env().status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_TEXT(status, "RANK and WORLD_SIZE");
    EXPECT_TEXT(status, "SLURM_PROCID and SLURM_NTASKS");
  }
  {
    const Environment e(std::vector{std::pair{"RANK", "0"}});
    EXPECT_EQ(LaunchedRank::from_env().status().code(), Code::kInvalidArgument);
    EXPECT_TEXT(LaunchedRank::from_env().status(), "RANK is set, but WORLD_SIZE is not");
  }
  for (const char* rank : {"x", "-1", "1.5", "4", "99999999999"}) {
    const Environment e({{"RANK", rank}, {"WORLD_SIZE", "4"}});
    EXPECT_EQ(LaunchedRank::from_env().status().code(), Code::kInvalidArgument) << rank;
    EXPECT_TEXT(LaunchedRank::from_env().status(), "RANK is");
  }
  {
    const Environment e({{"RANK", "0"}, {"WORLD_SIZE", "0"}});
    EXPECT_EQ(LaunchedRank::from_env().status().code(), Code::kInvalidArgument);
  }
}

TEST(EnvironmentStore, NamesAllThatIsMissing) {
  {
    const Environment e({});
    const Status status = open_store("env://").status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    for (const char* part : {"RANK and WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) EXPECT_TEXT(status, part);
  }
  {
    const Environment e({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}});
    const Status status = open_store("env://").status();
    EXPECT_TEXT(status, "MASTER_PORT");
    EXPECT_FALSE(contains(status.message(), "MASTER_ADDR")) << status.to_string();
    EXPECT_FALSE(contains(status.message(), "WORLD_SIZE")) << status.to_string();
  }
  {
    const Environment e({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "http"}});
    EXPECT_EQ(open_store("env://").status().code(), Code::kInvalidArgument);
    EXPECT_TEXT(open_store("env://").status(), "MASTER_PORT is 'http'");
  }
}

TEST(EnvironmentStore, MeetsWhereTheEnvironmentSays) {
  const std::string port = std::to_string(free_port());
  const Environment e(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", port.c_str()}});
  as_threads(2, [&](Rank rank) {
    const auto store = join_or_fail("env://", rank, 2, quick_options());
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(store->set(std::to_string(rank), "here").ok());
    const auto other = store->get(std::to_string(1 - rank), in(10s));
    EXPECT_TRUE(other.ok()) << other.status().to_string();
    if (rank == 0) std::this_thread::sleep_for(100ms);  // rank 1 reads as long as rank 0's store lives
  });
}

}  // namespace
}  // namespace shardcomm
