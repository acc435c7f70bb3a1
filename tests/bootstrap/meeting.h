// What the tests of bootstrap share: ranks as threads, free ports, directories that go away.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shardcomm/store.h"

namespace shardcomm::testing {

using namespace std::chrono_literals;

inline Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

inline std::chrono::milliseconds since(Deadline start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
}

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Below the ports that the kernel gives to outgoing connections, so that nobody takes it meanwhile by chance.
inline int free_port() {
  static std::atomic<int> next{static_cast<int>(getpid() % 6000)};
  for (int tries = 0; tries < 1000; ++tries) {
    const int port = 20000 + next.fetch_add(1) * 7 % 12000;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const sockaddr_in address = loopback(port);
    const bool is_free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (is_free) return port;
  }
  ADD_FAILURE() << "no free port";
  return 0;
}

inline std::string tcp_uri(int port) { return "tcp://127.0.0.1:" + std::to_string(port); }

// A directory of its own, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shardcomm-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline Options quick_options(std::string secret = "the secret of this test") {
  Options options;
  options.init_timeout = 20s;
  options.job_secret = std::move(secret);
  return options;
}

inline std::unique_ptr<Store> open_or_die(const std::string& uri) {
  auto opened = open_store(uri);
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  return std::move(opened).value();
}

// A joined store, or null and a failure.
inline std::unique_ptr<Store> join_or_fail(const std::string& uri, Rank rank, int size, const Options& options) {
  auto store = open_or_die(uri);
  const Status joined = store->join(rank, size, options);
  EXPECT_TRUE(joined.ok()) << "rank " << rank << ": " << joined.to_string();
  return joined.ok() ? std::move(store) : nullptr;
}

// function(rank) on a thread per rank.
inline void as_threads(int size, const std::function<void(Rank)>& function) {
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) threads.emplace_back(function, rank);
  for (std::thread& thread : threads) thread.join();
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace shardcomm::testing

// The text of a status or of its absence has the part.
#define EXPECT_TEXT(status, part)                                         \
  EXPECT_TRUE(::shardcomm::testing::contains((status).to_string(), part)) \
      << (status).to_string() << "\nlacks: " << (part)
