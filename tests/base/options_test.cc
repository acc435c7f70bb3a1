// Options: defaults, environment, text over the environment, and errors that say what would be right.
#include "shardcomm/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/environment.h"

namespace shardcomm {
namespace {

using std::chrono::milliseconds;

// Sets a variable for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

std::string error(std::string_view text) {
  const auto options = Options::parse(text);
  if (options.ok()) return "accepted";
  EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
  return std::string(options.status().message());
}

TEST(Options, DefaultsComeFromTheHeader) {
  const auto options = Options::from_env();
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->timeout, milliseconds(600'000));
  EXPECT_EQ(options->transports, "auto");
  EXPECT_EQ(options->staging_bytes, size_t{512} << 10);
}

TEST(Options, TextGoesOverTheEnvironment) {
  const Variable timeout("SHARDCOMM_TIMEOUT_MS", "7000");
  const Variable chunk("SHARDCOMM_CHUNK_BYTES", "64K");
  const Variable empty("SHARDCOMM_LOG", "");
  const auto options = Options::parse("timeout_ms=5000,spin_us=0,trace_events=4K");
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->timeout, milliseconds(5000));
  EXPECT_EQ(options->chunk_bytes, 65536u);
  EXPECT_EQ(options->spin.count(), 0);
  EXPECT_EQ(options->trace_events, 4096u);
  EXPECT_EQ(options->log_level, "warn");
}

TEST(Options, TransportsAreAListInsideTheList) {
  const auto options = Options::parse("transports=shm,ucx,timeout_ms=5");
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->transports, "shm,ucx");
  EXPECT_EQ(options->timeout, milliseconds(5));
  EXPECT_EQ(error("transports=shm,floppy"),
            "transports is 'shm,floppy', but must be a list of auto, shm, p2p, ib, ucx, nccl");
  EXPECT_NE(error("transports=auto,shm"), "accepted");
  EXPECT_NE(error("transports="), "accepted");
}

TEST(Options, ErrorsListWhatIsValid) {
  EXPECT_EQ(error("log=loud"), "log is 'loud', but must be one of off, error, warn, info, debug, trace");
  EXPECT_EQ(error("memory_access=magic"),
            "memory_access is 'magic', but must be one of auto, attach, attach_gathers, staging");
  EXPECT_NE(error("timeout=5").find("there are transports, chunk_bytes, "), std::string::npos);
  EXPECT_NE(error("staging_bytes=12").find("at least 4K"), std::string::npos);
  for (const char* bad : {"timeout_ms=0", "timeout_ms=-1", "timeout_ms=5s", "timeout_ms=", "timeout_ms=99999999999999",
                          "chunk_bytes=big", "trace_events=1G", "spin_us=1.5", "shm"}) {
    EXPECT_NE(error(bad), "accepted") << bad;
  }
  EXPECT_TRUE(Options::parse("").ok());
}

TEST(Options, TheEnvironmentsNameIsInItsErrors) {
  const Variable timeout("SHARDCOMM_TIMEOUT_MS", "soon");
  const auto options = Options::from_env();
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.status().message(),
            "SHARDCOMM_TIMEOUT_MS is 'soon', but must be a whole number from 1 to 31536000000");
}

TEST(Options, TheSecretIsNeverShown) {
  const Variable secret("SHARDCOMM_JOB_SECRET", "hunter2");
  const auto options = Options::parse("job_secret=hunter3");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->job_secret, "hunter3");
  EXPECT_EQ(options->describe().find("hunter"), std::string::npos);
  EXPECT_EQ(error("job_secret=a,hunter4").find("hunter"), std::string::npos);
}

TEST(Options, DescribeHasOneLineAKnob) {
  const std::string text = Options().describe();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 15);
  EXPECT_NE(text.find("SHARDCOMM_STAGING_BYTES"), std::string::npos);
  EXPECT_NE(text.find("default 512K"), std::string::npos);
}

TEST(LauncherVariable, UnsetAndEmptyAreNothing) {
  EXPECT_FALSE(launcher_variable("SHARDCOMM_TEST_NEVER_SET").has_value());
  const Variable empty("SHARDCOMM_TEST_EMPTY", "");
  EXPECT_FALSE(launcher_variable("SHARDCOMM_TEST_EMPTY").has_value());
  const Variable rank("SHARDCOMM_TEST_RANK", "3");
  EXPECT_EQ(launcher_variable("SHARDCOMM_TEST_RANK"), "3");
}

}  // namespace
}  // namespace shardcomm
