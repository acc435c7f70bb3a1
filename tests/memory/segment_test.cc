// Shared memory between threads and between forked processes, and everything a card may wrongly say.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "memory/memory.h"

namespace shardcomm {
namespace {

Segment make_segment(size_t bytes, std::string_view label = "window 'test'") {
  auto segment = Segment::create(bytes, label);
  EXPECT_TRUE(segment.ok()) << segment.status().to_string();
  return std::move(segment).value();
}

// Runs `body` in a forked child and gives its result, 0 … 127; 200 for a signal.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 200;
}

size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

size_t line_count(const char* path) {
  std::ifstream file(path);
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
}

// A child that owns a segment, has sent its cards, and waits to be killed.
class Owner {
 public:
  explicit Owner(size_t bytes) {
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    pid_ = fork();
    if (pid_ == 0) own(pipe_ends[1], bytes);
    close(pipe_ends[1]);
    EXPECT_EQ(read(pipe_ends[0], &card, sizeof card), static_cast<ssize_t>(sizeof card));
    EXPECT_EQ(read(pipe_ends[0], &attach, sizeof attach), static_cast<ssize_t>(sizeof attach));
    close(pipe_ends[0]);
  }
  ~Owner() { end(); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  SegmentCard card;
  AttachCard attach;

 private:
  [[noreturn]] static void own(int pipe_end, size_t bytes) {
    Segment segment = make_segment(bytes);
    std::memset(segment.data(), 0x5a, bytes);
    const SegmentCard card = segment.card();
    const AttachCard attach = attach_card();
    if (write(pipe_end, &card, sizeof card) < 0 || write(pipe_end, &attach, sizeof attach) < 0) _exit(1);
    for (;;) pause();
  }
  pid_t pid_ = -1;
};

TEST(Segment, IsZeroedPageAlignedAndWritable) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{5} << 20}) {
    Segment segment = make_segment(bytes);
    EXPECT_EQ(segment.size_bytes(), bytes);
    ASSERT_NE(segment.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(segment.data()) % 4096, 0u);
    EXPECT_TRUE(std::all_of(segment.data(), segment.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(segment.data(), 0xff, bytes);
    EXPECT_EQ(ftruncate(segment.fd(), 0), -1) << "sealed";
    EXPECT_TRUE(map_segment(segment.card()).ok());  // the trailer was not in the way
  }
}

TEST(Segment, SameProcessSeesTheSameAddressesAndKeepsThem) {
  auto owner = std::make_unique<Segment>(make_segment(10'000));
  const SegmentCard card = owner->card();
  Result<SegmentView> view = Status(Code::kUnavailable, "not yet");
  std::thread([&] { view = map_segment(card); }).join();
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  EXPECT_EQ(view->data(), owner->data());
  owner->data()[9'999] = std::byte{7};
  owner.reset();
  EXPECT_EQ(view->data()[9'999], std::byte{7});
  EXPECT_TRUE(map_segment(card).ok()) << "a view keeps the memory, and others may still find it";
  view = Status(Code::kUnavailable, "dropped");
  EXPECT_EQ(map_segment(card).status().code(), Code::kUnavailable);
}

TEST(Segment, MoveKeepsOneOwner) {
  Segment first = make_segment(100);
  const int fd = first.fd();
  Segment second = std::move(first);
  EXPECT_EQ(second.fd(), fd);
  second = make_segment(200);
  EXPECT_EQ(second.size_bytes(), 200u);
  second.close_fd();
  EXPECT_EQ(second.fd(), -1);
  second.data()[199] = std::byte{1};
  EXPECT_TRUE(map_segment(second.card()).ok()) << "within the process no fd is needed";
}

TEST(Segment, ChildAndParentShareBytesBothWays) {
  constexpr size_t kBytes = 3 * 4096 + 5;
  Segment segment = make_segment(kBytes);
  std::memset(segment.data(), 0x11, kBytes);
  EXPECT_EQ(in_child([&] {
              const auto view = map_segment(segment.card());
              if (!view.ok() || view->data() == segment.data() || view->size_bytes() != kBytes) return 1;
              for (size_t i = 0; i < kBytes; ++i) {
                if (view->data()[i] != std::byte{0x11}) return 2;
                view->data()[i] = static_cast<std::byte>(i % 251);
              }
              return 0;
            }),
            0);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(segment.data()[i], static_cast<std::byte>(i % 251)) << i;
  EXPECT_EQ(in_child([] { return process_token() == process_token() ? 0 : 1; }), 0);
}

TEST(Segment, KillNineLeavesNothingButTheViewStays) {
  Owner owner(100'000);
  const auto view = map_segment(owner.card);
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  owner.end();
  EXPECT_TRUE(std::all_of(view->data(), view->data() + 100'000, [](std::byte b) { return b == std::byte{0x5a}; }));
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().string().find("shardcomm"), std::string::npos) << entry.path();
  }
  const auto late = map_segment(owner.card);
  EXPECT_EQ(late.status().code(), Code::kUnavailable);
  EXPECT_NE(late.status().message().find("ENOENT"), std::string_view::npos) << late.status().to_string();
}

TEST(Segment, ZeroBytesAreMappedToo) {
  const Owner owner(0);
  const auto view = map_segment(owner.card);
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  EXPECT_EQ(view->size_bytes(), 0u);
  EXPECT_NE(view->data(), nullptr);
}

TEST(Segment, WrongCardsAreRefused) {
  const Owner owner(5000);
  const auto refused = [](SegmentCard card) {
    const auto view = map_segment(card);
    EXPECT_EQ(view.status().code(), Code::kUnavailable) << view.status().to_string();
    return !view.ok();
  };
  ASSERT_TRUE(map_segment(owner.card).ok());
  SegmentCard card = owner.card;
  card.segment.words[1] ^= 1;
  EXPECT_TRUE(refused(card)) << "token";
  card = owner.card;
  card.size_bytes = 4999;  // the same pages
  EXPECT_TRUE(refused(card)) << "size, same pages";
  card.size_bytes = 50'000;
  EXPECT_TRUE(refused(card)) << "size";
  card.size_bytes = UINT64_MAX;
  EXPECT_TRUE(refused(card)) << "absurd size";
  card = owner.card;
  card.process.words[0] ^= 1;  // says nothing about where the file is
  EXPECT_TRUE(map_segment(card).ok());
  for (const int fd : {-1, 0, 1, 2, 999}) {
    card = owner.card;
    card.fd = fd;
    EXPECT_TRUE(refused(card)) << "fd " << fd;
  }
  for (const int pid : {0, -1, 1, INT32_MAX}) {
    card = owner.card;
    card.pid = pid;
    EXPECT_TRUE(refused(card)) << "pid " << pid;
  }
  card = owner.card;
  card.process = process_token();
  EXPECT_TRUE(refused(card)) << "as if it were ours";
}

// A foreign memfd with the right name and length. It becomes a segment only with both the seals and the token.
TEST(Segment, ImpostersAreRefused) {
  constexpr size_t kFileBytes = 2 * 4096;  // a page of bytes, and the trailer's
  const Segment real = make_segment(100);
  for (const bool sealed : {false, true}) {
    for (const bool with_token : {false, true}) {
      const int fd = memfd_create("shardcomm:imposter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      ASSERT_GE(fd, 0);
      ASSERT_EQ(ftruncate(fd, kFileBytes), 0);
      ASSERT_TRUE(!with_token || pwrite(fd, real.data(), kFileBytes, 0) == static_cast<ssize_t>(kFileBytes));
      ASSERT_TRUE(!sealed || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
      SegmentCard card = real.card();
      card.fd = fd;
      const int refused = in_child([&] { return map_segment(card).status().code() == Code::kUnavailable ? 1 : 0; });
      EXPECT_EQ(refused, sealed && with_token ? 0 : 1) << "sealed " << sealed << " with token " << with_token;
      close(fd);
    }
  }
}

TEST(Segment, TooMuchIsRefusedBeforeItIsTaken) {
  const auto segment = Segment::create(size_t{100} << 40, "window 'x'");
  ASSERT_FALSE(segment.ok());
  EXPECT_EQ(segment.status().code(), Code::kOutOfMemory);
  const std::string text(segment.status().message());
  EXPECT_EQ(text.rfind("window 'x' needs 100 TiB, ", 0), 0u) << text;
  EXPECT_NE(text.find(" GiB available"), std::string::npos) << text;
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2 + 1}) {
    EXPECT_EQ(Segment::create(bytes, "window").status().code(), Code::kOutOfMemory);
  }
}

TEST(Segment, ProcessLimitsAreErrorsNotSignals) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{1 << 20, 1 << 20};
              setrlimit(RLIMIT_FSIZE, &limit);
              if (!Segment::create(1000, "small").ok()) return 1;
              return Segment::create(2 << 20, "large").status().code() == Code::kOutOfMemory ? 0 : 2;
            }),
            0);
  EXPECT_EQ(in_child([] {
              const rlimit limit{16, 16};
              setrlimit(RLIMIT_NOFILE, &limit);
              std::vector<Segment> held;
              for (int i = 0; i < 32; ++i) {
                auto segment = Segment::create(100, "window 'many'");
                if (!segment.ok()) return segment.status().code() == Code::kUnavailable ? 0 : 1;
                held.push_back(std::move(segment).value());
              }
              return 2;
            }),
            0);
}

TEST(Segment, AThousandLeaveNothing) {
  (void)make_segment(1);
  const size_t fds = entries_of("/proc/self/fd");
  const size_t maps = line_count("/proc/self/maps");
  for (int i = 0; i < 1000; ++i) {
    Segment segment = make_segment(static_cast<size_t>(i) * 17);
    const auto view = map_segment(segment.card());
    ASSERT_TRUE(view.ok());
    segment.data()[0] = std::byte{1};
  }
  EXPECT_EQ(entries_of("/proc/self/fd"), fds);
  EXPECT_LE(line_count("/proc/self/maps"), maps + 2);
}

TEST(PeerMemory, ReadsAnotherProcess) {
  std::vector<uint32_t> source(300'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint32_t>(i * 2654435761u);
  const AttachCard parent = attach_card();
  const Status probe = probe_peer_read(parent);
  if (!probe.ok()) GTEST_SKIP() << probe.to_string();
  const auto address = reinterpret_cast<uint64_t>(source.data());
  EXPECT_EQ(in_child([&] {
              if (!probe_peer_read(parent).ok()) return 1;
              std::vector<uint32_t> target(source.size() + 2, 77);
              const size_t bytes = source.size() * 4;
              if (!read_peer(parent.pid, target.data() + 1, address, bytes).ok()) return 2;
              if (target.front() != 77 || target.back() != 77) return 3;
              if (!std::equal(source.begin(), source.end(), target.begin() + 1)) return 4;
              return read_peer(parent.pid, nullptr, 0, 0).ok() ? 0 : 5;
            }),
            0);
}

TEST(PeerMemory, RefusalsHaveReasons) {
  Owner owner(10);
  if (const Status probe = probe_peer_read(owner.attach); !probe.ok()) GTEST_SKIP() << probe.to_string();
  AttachCard other = owner.attach;
  other.process.words[0] ^= 1;
  EXPECT_EQ(probe_peer_read(other).code(), Code::kUnavailable);
  EXPECT_NE(probe_peer_read(other).message().find("another process"), std::string_view::npos);
  other = owner.attach;
  other.token_address = 8;
  EXPECT_EQ(probe_peer_read(other).code(), Code::kUnavailable);
  std::byte target[16];
  const Status fault = read_peer(owner.attach.pid, target, 8, sizeof target);
  EXPECT_NE(fault.message().find("at 0x8: EFAULT"), std::string_view::npos) << fault.to_string();
  owner.end();
  EXPECT_EQ(probe_peer_read(owner.attach).code(), Code::kUnavailable);
  EXPECT_EQ(read_peer(owner.attach.pid, target, owner.attach.token_address, 16).code(), Code::kPeerLost);
}

// A tree like /proc and /sys in a directory of its own.
class FakeSystem {
 public:
  FakeSystem() : root_(std::filesystem::temp_directory_path() / ("segment_test." + std::to_string(getpid()))) {}
  ~FakeSystem() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, std::string_view text) {
    const auto file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  size_t available() const { return memory_available_bytes(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST(MemoryAvailable, IsTheLeastOfAllLimits) {
  FakeSystem system;
  EXPECT_EQ(system.available(), SIZE_MAX);
  system.write("proc/meminfo", "MemTotal:       2000 kB\nMemFree:         10 kB\nMemAvailable:    1000 kB\n");
  EXPECT_EQ(system.available(), 1000u * 1024);
  system.write("proc/self/cgroup", "4:cpu,memory:/job/step\n0::/slice/job\n");
  EXPECT_EQ(system.available(), 1000u * 1024);
  system.write("sys/fs/cgroup/slice/job/memory.max", "max\n");
  system.write("sys/fs/cgroup/slice/job/memory.current", "100\n");
  EXPECT_EQ(system.available(), 1000u * 1024);
  system.write("sys/fs/cgroup/slice/memory.max", "900000\n");  // an outer group binds too
  system.write("sys/fs/cgroup/slice/memory.current", "500000\n");
  system.write("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 200000\nactive_file 3\n");
  EXPECT_EQ(system.available(), 600'000u);
  system.write("sys/fs/cgroup/memory/job/step/memory.limit_in_bytes", "1000\n");
  system.write("sys/fs/cgroup/memory/job/step/memory.usage_in_bytes", "5000\n");
  EXPECT_EQ(system.available(), 0u);
}

TEST(MemoryAvailable, AContainersPathMayLeadNowhere) {
  FakeSystem system;
  system.write("proc/self/cgroup", "0::/../../host/path\n");
  system.write("sys/fs/cgroup/memory.max", "4096\n");
  system.write("sys/fs/cgroup/memory.current", "96\n");
  EXPECT_EQ(system.available(), 4000u);
  EXPECT_GT(memory_available_bytes(), size_t{1} << 20);
  EXPECT_LT(memory_available_bytes(), size_t{1} << 50);
  EXPECT_TRUE(check_memory_for(0, "nothing").ok());
}

}  // namespace
}  // namespace shardcomm
