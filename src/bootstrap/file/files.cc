#include "bootstrap/file/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "bootstrap/auth.h"

namespace shardcomm::bootstrap {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr size_t kLongestName = 200;  // of 255 that file systems allow: prefixes and suffixes come to it

Status errno_status(const std::string& call) { return Status::native(Origin::kErrno, errno, call); }

// Locks of open file descriptions: unlike flock they work on network file systems, unlike process locks they tell
// threads of one process apart and are not lost when another descriptor of the file closes.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_status(fmt::format("write {} bytes to {}", bytes.size(), path));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status name_it(const NewFile& file) {
  if (file.replace) {
    if (rename(file.temporary.c_str(), file.path.c_str()) == 0) return {};
    return errno_status("rename to " + file.path);
  }
  // Not rename: of two that take one name at the same time, exactly one must fail.
  if (link(file.temporary.c_str(), file.path.c_str()) == 0) return {};
  return errno_status("link " + file.path);
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.open()) return errno_status("open " + path);
  std::string bytes;
  for (;;) {
    const size_t before = bytes.size();
    bytes.resize(before + kReadBytes);
    const ssize_t got = read(fd.get(), bytes.data() + before, kReadBytes);
    const int error = errno;
    bytes.resize(before + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got == 0) return bytes;
    if (got < 0 && error != EINTR) return Status::native(Origin::kErrno, error, "read " + path);
  }
}

Result<Fd> publish(const NewFile& file) {
  Fd fd(open(file.temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.open()) return errno_status("create " + file.temporary);
  struct flock lock = whole_file(F_WRLCK);
  Status status;
  if (fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) status = errno_status("lock " + file.temporary);
  if (status.ok()) status = write_all(fd.get(), file.bytes, file.temporary);
  if (status.ok()) status = name_it(file);
  if (!status.ok() || !file.replace) unlink(file.temporary.c_str());
  if (!status.ok()) return status;
  return fd;
}

Presence presence(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.open()) return Presence::kNone;
  struct flock lock = whole_file(F_RDLCK);
  if (fcntl(fd.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return Presence::kHeld;
  // Its owner may have renamed or removed it, as a goodbye, between our open and the look at the lock.
  return same_file(fd.get(), path) ? Presence::kAbandoned : Presence::kNone;
}

bool same_file(int fd, const std::string& path) {
  struct stat a {
  }, b{};
  return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string file_name_of(std::string_view key) {
  std::string name;
  for (char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || (c == '.' && !name.empty());
    if (plain) {
      name.push_back(c);
    } else {
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  // '~' comes from no key, so a digest never meets a spelled-out name.
  if (name.size() > kLongestName) name = name.substr(0, 64) + "~" + hex(mac_of(Secret(""), {key}));
  return name;
}

}  // namespace shardcomm::bootstrap
