// The owner of a stream's thread.
#include "device/host_stream.h"

#include <fmt/format.h>
#include <pthread.h>

#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace shardcomm {
namespace {

constexpr size_t kThreadNameBytes = 15;  // the kernel's limit

}  // namespace

HostStream::Impl::~Impl() {
  if (!thread.joinable()) return;
  SHARDCOMM_CHECK(!queue->on_own_thread(), "a task destroys the stream that runs it");
  queue->close();
  thread.join();
}

Result<HostStream> HostStream::create(std::string_view thread_name) {
  try {
    auto impl = std::make_unique<Impl>(thread_name);
    impl->thread = std::thread([queue = impl->queue] {
      pthread_setname_np(pthread_self(), queue->name().substr(0, kThreadNameBytes).c_str());
      queue->run();
    });
    return HostStream(std::move(impl));
  } catch (const std::system_error& error) {
    return Status::native(Origin::kErrno, error.code().value(), fmt::format("starting host stream {}", thread_name));
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, fmt::format("starting host stream {}", thread_name));
  }
}

HostStream::HostStream(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
HostStream::HostStream(HostStream&&) noexcept = default;
HostStream& HostStream::operator=(HostStream&&) noexcept = default;
HostStream::~HostStream() = default;

StreamRef HostStream::ref() const noexcept { return StreamRef::host(impl_.get()); }

}  // namespace shardcomm
