/* SPDX-License-Identifier: MIT
 *
 * gpushm.h, gpushm_handle.h, gpushm_memory.h and gpushm_stream.h for C++17: objects that release
 * what they own, and exceptions for errors. It has no code of its own in the library. Where it has
 * no function, call those headers' with get():
 *
 *	auto c = gpushmxx::connect();
 *	auto b = gpushmxx::open(c, "model/weights", GPUSHM_READ, 5000);
 *	auto w = gpushmxx::get(b, "layer0");
 *	launch(gpushm_array_device_ptr(w.get()), gpushm_array_dim(w.get(), 0));
 *
 *	auto s = gpushmxx::open_stream(c, "cam/0", GPUSHM_LATEST);
 *	while (auto f = gpushmxx::next(s, cuda_stream, 1000)) {
 *		infer(gpushm_array_device_ptr(f.array("rgb").get()));
 *		f.release(cuda_stream);
 *	}
 *
 * Objects may be destroyed in any order. To learn whether a close failed, or has lost contents that
 * were not published, call gpushm_close(). (The namespace can't be "gpushm": that is a struct.)
 */
#ifndef GPUSHM_HPP
#define GPUSHM_HPP

#include <gpushm_handle.h>
#include <gpushm_memory.h>
#include <gpushm_query.h>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace gpushmxx
{

/* code() is the errno; word() the daemon's code ("NOT_FOUND"), or "" for the library's errors. */
class error : public std::system_error
{
    public:
	explicit error(int number)
		: std::system_error(number, std::generic_category(), gpushm_error()),
		  word_(gpushm_error_code())
	{
	}
	const char *word() const noexcept { return word_; }

    private:
	const char *word_; /* static */
};

/* Throws the error of a function of gpushm.h that returned r, if r is one. Returns r. */
template <typename T> T check(T r)
{
	if (r < 0)
		throw error(static_cast<int>(-r));
	return r;
}

/* A buffer is closed when its last array has been freed, whichever is destroyed first. */
using connection = std::shared_ptr<struct ::gpushm>;
using buffer = std::shared_ptr<gpushm_buffer>;
using array = std::shared_ptr<gpushm_array>;
using watch = std::shared_ptr<gpushm_watch>;

inline buffer own(gpushm_buffer *b)
{
	return buffer(b, gpushm_close);
}

/* For an array or view that a function of gpushm.h has made in the buffer. */
inline array own(const buffer &b, gpushm_array *a)
{
	return array(a, [b](gpushm_array *p) { gpushm_array_free(p); });
}

/* The functions of gpushm.h of the same names. They throw error. */

inline connection connect(const char *socket_path = nullptr)
{
	struct ::gpushm *c = nullptr;

	check(gpushm_connect(socket_path, &c));
	return connection(c, gpushm_disconnect);
}

inline buffer create(const connection &c, const std::string &name, uint64_t bytes,
		     const gpushm_create_options *options = nullptr)
{
	gpushm_buffer *b = nullptr;

	check(gpushm_create(c.get(), name.c_str(), bytes, options, &b));
	return own(b);
}

inline buffer create(const connection &c, const std::string &name, gpushm_array_spec *specs,
		     size_t n, const gpushm_create_options *options = nullptr)
{
	gpushm_buffer *b = nullptr;

	check(gpushm_create_arrays(c.get(), name.c_str(), specs, n, options, &b));
	return own(b);
}

inline buffer open(const connection &c, const std::string &name, gpushm_access access,
		   uint64_t timeout_ms = 0, const gpushm_open_options *options = nullptr)
{
	gpushm_buffer *b = nullptr;

	check(gpushm_open(c.get(), name.c_str(), access, timeout_ms, options, &b));
	return own(b);
}

/* The second is true if this process has created the buffer: it fills and publishes it. */
inline std::pair<buffer, bool> open_or_create(const connection &c, const std::string &name,
					      gpushm_access access, uint64_t timeout_ms,
					      uint64_t bytes,
					      const gpushm_create_options *creating = nullptr,
					      const gpushm_open_options *opening = nullptr)
{
	gpushm_buffer *b = nullptr;
	int r = check(gpushm_open_or_create(c.get(), name.c_str(), access, timeout_ms, opening,
					    bytes, creating, &b));

	return { own(b), r == GPUSHM_CREATED };
}

inline array get(const buffer &b, const std::string &name)
{
	gpushm_array *a = nullptr;

	check(gpushm_array_get(b.get(), name.c_str(), &a));
	return own(b, a);
}

/* Those of gpushm_memory.h. */

inline void suspend(const buffer &b, uint32_t flags = 0)
{
	check(gpushm_suspend(b.get(), flags));
}

/* 0, GPUSHM_OTHER_PAGES or GPUSHM_OTHER_GENERATION. */
inline int resume(const buffer &b, uint64_t timeout_ms = GPUSHM_WAIT_FOREVER)
{
	return check(gpushm_resume(b.get(), timeout_ms));
}

inline void use(const buffer &b)
{
	check(gpushm_use(b.get()));
}

inline bool wanted(const buffer &b)
{
	return check(gpushm_wanted(b.get())) != 0;
}

inline bool suspended(const buffer &b)
{
	return check(gpushm_buffer_suspended(b.get())) != 0;
}

/* Those of gpushm_handle.h; a handle is the bytes of a string. */

inline std::string handle(const array &a)
{
	char bytes[GPUSHM_HANDLE_MAX];
	size_t n = 0;

	check(gpushm_array_handle(a.get(), bytes, sizeof(bytes), &n));
	return std::string(bytes, n);
}

inline std::string handle(const buffer &b)
{
	char bytes[GPUSHM_HANDLE_MAX];
	size_t n = 0;

	check(gpushm_buffer_handle(b.get(), bytes, sizeof(bytes), &n));
	return std::string(bytes, n);
}

inline array open_handle(const connection &c, const std::string &bytes,
			 const gpushm_handle_options *options = nullptr)
{
	gpushm_array *a = nullptr;

	check(gpushm_open_handle(c.get(), bytes.data(), bytes.size(), options, &a));
	return array(a, gpushm_array_free);
}

inline buffer open_buffer_handle(const connection &c, const std::string &bytes,
				 const gpushm_handle_options *options = nullptr)
{
	gpushm_buffer *b = nullptr;

	check(gpushm_open_buffer_handle(c.get(), bytes.data(), bytes.size(), options, &b));
	return own(b);
}

/* Its get() is the address for GPUs with GPUSHM_PIN_MAPPED, else the memory's. */
inline std::shared_ptr<void> pin(void *memory, size_t size, uint32_t flags = 0)
{
	void *there = memory;

	check(gpushm_pin(memory, size, flags, &there));
	return std::shared_ptr<void>(there, [memory](void *) { gpushm_unpin(memory); });
}

inline watch watch_new(const connection &c)
{
	gpushm_watch *w = nullptr;

	check(gpushm_watch_new(c.get(), &w));
	return watch(w, gpushm_watch_free);
}

/* A stream is closed when its last frame and array are gone, too. */
using stream = std::shared_ptr<gpushm_stream>;

inline stream create_stream(const connection &c, const std::string &name,
			    gpushm_stream_spec spec, const gpushm_create_options *options = nullptr)
{
	gpushm_stream *s = nullptr;

	spec.struct_size = sizeof(spec);
	check(gpushm_stream_create(c.get(), name.c_str(), &spec, options, &s));
	return stream(s, gpushm_stream_close);
}

inline stream open_stream(const connection &c, const std::string &name, gpushm_follow follow,
			  uint32_t max_held = 1, uint64_t timeout_ms = 0,
			  const gpushm_follow_options *options = nullptr)
{
	gpushm_stream *s = nullptr;

	check(gpushm_stream_open(c.get(), name.c_str(), follow, max_held, timeout_ms, options, &s));
	return stream(s, gpushm_stream_close);
}

/* A frame that is filled or held, or none. Unless publish() or release() ended it, its destructor
 * waits for the work that this process has queued on the GPU, and gives the slot back. */
class frame
{
    public:
	frame() = default;
	frame(stream s, gpushm_frame *f) : stream_(std::move(s)), frame_(f) {}
	frame(frame &&other) noexcept
		: stream_(std::move(other.stream_)), frame_(std::exchange(other.frame_, nullptr))
	{
	}
	frame &operator=(frame &&other) noexcept
	{
		std::swap(stream_, other.stream_);
		std::swap(frame_, other.frame_);
		return *this;
	}
	~frame() { gpushm_frame_cancel(frame_); }

	explicit operator bool() const noexcept { return frame_ != nullptr; }
	gpushm_frame *get() const noexcept { return frame_; }
	uint64_t seq() const { return gpushm_frame_seq(frame_); }

	/* Destroy it before the frame is published or released. */
	gpushmxx::array array(const std::string &name) const
	{
		gpushm_array *a = nullptr;

		check(gpushm_frame_array(frame_, name.c_str(), &a));
		return gpushmxx::array(
			a, [s = stream_](gpushm_array *p) { gpushm_array_free(p); });
	}

	void publish(void *cuda_stream, const void *meta = nullptr, size_t n = 0)
	{
		int r = gpushm_frame_publish(frame_, cuda_stream, meta, n);

		if (r == -EINVAL)
			throw error(EINVAL);
		end(r);
	}

	void release(void *cuda_stream)
	{
		end(gpushm_frame_release(frame_, cuda_stream));
	}

    private:
	/* The stream may be closed here, but not before the error has its text. */
	void end(int r)
	{
		gpushmxx::stream last = std::move(stream_);

		frame_ = nullptr;
		check(r);
	}

	gpushmxx::stream stream_;
	gpushm_frame *frame_ = nullptr;
};

/* No frame where gpushm_frame_begin() and gpushm_frame_next() return -EAGAIN or -ETIMEDOUT. */

inline frame frame_or_none(const stream &s, int r, gpushm_frame *f)
{
	if (r == -EAGAIN || r == -ETIMEDOUT)
		return frame();
	check(r);
	return frame(s, f);
}

inline frame begin(const stream &s, void *cuda_stream, uint64_t timeout_ms)
{
	gpushm_frame *f = nullptr;
	int r = gpushm_frame_begin(s.get(), cuda_stream, timeout_ms, &f);

	return frame_or_none(s, r, f);
}

inline frame next(const stream &s, void *cuda_stream, uint64_t timeout_ms)
{
	gpushm_frame *f = nullptr;
	int r = gpushm_frame_next(s.get(), cuda_stream, timeout_ms, &f);

	return frame_or_none(s, r, f);
}

} // namespace gpushmxx

#endif
