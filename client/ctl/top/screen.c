/* SPDX-License-Identifier: MIT
 *
 * The terminal. ncurses is opened at run time, because it is one more library than a command that
 * only lists buffers needs. All signals that end or stop the process are read from a descriptor
 * between two pages, so that the terminal is always restored first; then the process sends itself
 * the signal again, for its parent to see.
 */
#include "client/ctl/top/screen.h"

#include "client/ctl/top/view.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

/* Else wmove() and others are macros. */
#define NCURSES_NOMACROS 1
#define NCURSES_WIDECHAR 1

#include <dlfcn.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>

#define LIBRARY "libncursesw.so.6"
#define REPLY_MS 1000u /* so long the daemon may take to reply, while no key is obeyed */
#define RETRY_MS 1000u /* after an error */
#define CTRL_L 0x0c    /* draw everything again */

/* The functions of ncurses that are used. */
/* clang-format off */
#define FUNCTIONS(X) \
	X(newterm) X(newwin) X(delwin) X(endwin) X(delscreen) X(cbreak) X(noecho) X(nonl) X(keypad) \
	X(nodelay) X(curs_set) X(set_escdelay) X(has_colors) X(start_color) X(use_default_colors) \
	X(init_pair) X(resizeterm) X(wresize) X(werase) X(clearok) X(wmove) X(waddnstr) \
	X(wattr_set) X(wrefresh) X(wget_wch)
/* clang-format on */

#define MEMBER(name) __typeof__(name) *name;
static struct {
	FUNCTIONS(MEMBER)
} curses;

int screen_check(void)
{
#define NAME(name) { #name, (void **)&curses.name },
	static const struct {
		const char *name;
		void **to;
	} functions[] = { FUNCTIONS(NAME) };
	/* Until the process ends. */
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return ctl_error(CTL_FAILED,
				 "top: the screen needs a library: %s; install ncurses (Debian: "
				 "libncursesw6), or use --once or --json",
				 dlerror());
	for (size_t i = 0; i < array_size(functions); i++) {
		*functions[i].to = dlsym(library, functions[i].name);
		if (!*functions[i].to)
			return ctl_error(CTL_FAILED,
					 "top: %s is too old: it has no %s(); use --once or --json",
					 LIBRARY, functions[i].name);
	}
	return CTL_OK;
}

struct screen {
	struct ctl *ctl;
	struct state *state;
	uint64_t delay, next;	  /* ms; next: CLOCK_MONOTONIC, of the next look */
	SCREEN *terminal;	  /* owned */
	WINDOW *window;		  /* owned */
	sigset_t blocked, before; /* signals */
	int signals;		  /* owned; the descriptor */
	int ended_by;		  /* a signal; 0: none */
	int lines, columns;
	size_t page;  /* rows of the list that are visible */
	bool hung_up; /* the terminal has gone */

	struct sample *sample; /* owned; the model borrows it */
	struct model model;
};

/* ---- the terminal ---- */

static void set_size(struct screen *s)
{
	struct winsize w;
	bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row && w.ws_col;

	s->lines = known ? w.ws_row : 24;
	s->columns = known ? w.ws_col : 80;
	curses.resizeterm(s->lines, s->columns);
	curses.wresize(s->window, s->lines, s->columns);
	curses.clearok(s->window, true);
}

static void set_colours(void)
{
	static const short colours[] = {
		[TABLE_GOOD] = COLOR_GREEN, [TABLE_WARN] = COLOR_YELLOW, [TABLE_BAD] = COLOR_RED
	};

	curses.start_color();
	curses.use_default_colors();
	for (short i = TABLE_GOOD; i <= TABLE_BAD; i++)
		curses.init_pair(i, colours[i], -1);
}

/* newterm() sets handlers for some of our signals, which would end the process in their own way. */
static void drop_handlers(const struct screen *s)
{
	for (int n = 1; n < SIGRTMIN; n++)
		if (sigismember(&s->blocked, n))
			signal(n, SIG_DFL);
}

static int open_terminal(struct screen *s)
{
	s->terminal = curses.newterm(NULL, stdout, stdin);
	drop_handlers(s);
	if (s->terminal)
		s->window = curses.newwin(0, 0, 0, 0);
	if (!s->window) {
		if (s->terminal)
			curses.endwin();
		return ctl_error(CTL_FAILED,
				 "top: the terminal \"%s\" is not known or can't move its cursor; "
				 "set TERM, or use --once or --json",
				 getenv("TERM"));
	}
	curses.cbreak();
	curses.noecho();
	curses.nonl();
	curses.set_escdelay(25);
	curses.curs_set(0);
	curses.keypad(s->window, true);
	curses.nodelay(s->window, true);
	if (s->ctl->colour && curses.has_colors())
		set_colours();
	set_size(s);
	return CTL_OK;
}

static void close_terminal(struct screen *s)
{
	if (s->window)
		curses.delwin(s->window);
	if (s->terminal) {
		curses.endwin();
		curses.delscreen(s->terminal);
	}
}

static void set_style(const struct screen *s, enum table_style style)
{
	static const attr_t plain[] = {
		[TABLE_PLAIN] = A_NORMAL, [TABLE_BOLD] = A_BOLD, [TABLE_GOOD] = A_NORMAL,
		[TABLE_WARN] = A_BOLD,	  [TABLE_BAD] = A_BOLD,	 [TABLE_DIM] = A_DIM
	};
	bool coloured = s->ctl->colour && style >= TABLE_GOOD && style <= TABLE_BAD;

	curses.wattr_set(s->window, plain[style], (short)(coloured ? (int)style : 0), NULL);
}

/* The style that an escape sequence of table.h begins; returns what follows the sequence. */
static const char *read_style(const char *text, enum table_style *ret)
{
	*ret = TABLE_PLAIN;
	for (enum table_style i = TABLE_BOLD; i <= TABLE_DIM; i++)
		if (!strncmp(text, table_styles[i], strlen(table_styles[i])))
			*ret = i;
	return text + strcspn(text, "m") + 1;
}

/* Draws what fits of a line; returns its end. */
static const char *draw_line(const struct screen *s, const char *text)
{
	size_t left = (size_t)s->columns, len;

	for (; *text && *text != '\n'; text += len) {
		_cleanup_(free_ptr) char *run = NULL, *shown = NULL;
		enum table_style style;

		if (*text == '\033') {
			text = read_style(text, &style);
			set_style(s, style);
		}
		len = strcspn(text, "\033\n");
		run = strndup(text, len);
		shown = run && left ? output_cut(run, left) : NULL;
		if (!shown)
			continue;
		curses.waddnstr(s->window, shown, -1);
		left -= output_columns(shown);
	}
	return text;
}

static int draw(struct screen *s)
{
	_cleanup_(free_ptr) char *text = NULL;
	const char *at;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return -ENOMEM;
	s->page = view_screen(&s->model, s->state, (size_t)s->lines, (size_t)s->columns, out);
	if (fclose(out) != 0)
		return -ENOMEM;
	set_style(s, TABLE_PLAIN);
	curses.werase(s->window);
	at = text;
	for (int row = 0; row < s->lines && *at; row++) {
		curses.wmove(s->window, row, 0);
		at = draw_line(s, at);
		at += *at == '\n';
	}
	curses.wrefresh(s->window);
	return 0;
}

/* ---- events ---- */

/* Makes the sample the one that is shown. */
static int show(struct screen *s, struct sample *fresh)
{
	struct model m;

	if (model_make(s->sample, fresh, &s->state->choice, &m) < 0) {
		sample_free(fresh);
		return -ENOMEM;
	}
	model_done(&s->model);
	sample_free(s->sample);
	s->sample = fresh;
	s->model = m;
	return 0;
}

/* After an error it connects anew, unless a reply is just late. */
static int look(struct screen *s, uint64_t *shown)
{
	struct gpushm **c = &s->ctl->connection;
	uint64_t began = clock_monotonic_ms();
	struct sample *fresh = NULL;
	int r = *c ? 0 : gpushm_connect(s->ctl->socket, c);

	if (r == 0)
		r = gpushm_set_timeout(*c, REPLY_MS);
	if (r == 0)
		r = sample_take(*c, s->state->choice.word, &fresh);
	snprintf(s->state->error, sizeof(s->state->error), "%s", r < 0 ? gpushm_error() : "");
	if (r == 0) {
		s->next = sample_due(began, clock_monotonic_ms(), s->delay);
		++*shown;
		return show(s, fresh);
	}
	s->next = clock_monotonic_ms() + RETRY_MS;
	if (r != -ETIMEDOUT)
		*c = gpushm_disconnect(*c);
	return r == -ENOMEM ? r : 0;
}

/* ncurses' number of a key as ours; 0: none. */
static uint32_t translate(int result, wint_t key)
{
	static const struct {
		wint_t curses;
		uint32_t key;
	} keys[] = {
		{ KEY_UP, TOP_KEY_UP },		{ KEY_DOWN, TOP_KEY_DOWN },
		{ KEY_PPAGE, TOP_KEY_PAGE_UP }, { KEY_NPAGE, TOP_KEY_PAGE_DOWN },
		{ KEY_HOME, TOP_KEY_HOME },	{ KEY_END, TOP_KEY_END },
		{ KEY_BTAB, TOP_KEY_BACK_TAB },
	};

	if (result != KEY_CODE_YES)
		return (uint32_t)key;
	for (size_t i = 0; i < array_size(keys); i++)
		if (keys[i].curses == key)
			return keys[i].key;
	return 0;
}

static void on_keys(struct screen *s)
{
	wint_t typed;
	int result;

	while ((result = curses.wget_wch(s->window, &typed)) != ERR) {
		if (result != KEY_CODE_YES && typed == CTRL_L)
			curses.clearok(s->window, true);
		state_key(s->state, translate(result, typed), &s->model, s->page);
	}
}

/* Ctrl-Z: gives the terminal back, stops, and draws everything again when it goes on. */
static void stop(struct screen *s)
{
	curses.endwin();
	sigprocmask(SIG_SETMASK, &s->before, NULL);
	raise(SIGTSTP);
	sigprocmask(SIG_BLOCK, &s->blocked, NULL);
	set_size(s);
}

static void on_signal(struct screen *s)
{
	struct signalfd_siginfo info;

	if (read(s->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGWINCH)
		set_size(s);
	else if (info.ssi_signo == SIGTSTP)
		stop(s);
	else
		s->ended_by = (int)info.ssi_signo;
}

static int wait_and_handle(struct screen *s, uint64_t *shown)
{
	struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				{ .fd = s->signals, .events = POLLIN } };
	uint64_t now = clock_monotonic_ms();

	if (poll(fds, array_size(fds), now < s->next ? (int)(s->next - now) : 0) < 0 &&
	    errno != EINTR)
		return -errno;
	if (fds[1].revents)
		on_signal(s);
	if (fds[0].revents & POLLIN)
		on_keys(s);
	s->hung_up = fds[0].revents & (POLLHUP | POLLERR | POLLNVAL);
	return clock_monotonic_ms() < s->next ? 0 : look(s, shown);
}

/* Signals that the parent has us ignore stay ignored. */
static int block_signals(struct screen *s)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH };

	sigemptyset(&s->blocked);
	for (size_t i = 0; i < array_size(numbers); i++) {
		struct sigaction a;

		if (sigaction(numbers[i], NULL, &a) == 0 && a.sa_handler != SIG_IGN)
			sigaddset(&s->blocked, numbers[i]);
	}
	sigprocmask(SIG_BLOCK, &s->blocked, &s->before);
	s->signals = signalfd(-1, &s->blocked, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signals < 0 ? -errno : 0;
}

static int loop(struct screen *s, uint64_t count)
{
	uint64_t shown = 1;
	int r = 0;

	while (r == 0 && !s->state->quit && !s->ended_by && !s->hung_up) {
		r = draw(s);
		if (count && shown >= count)
			break;
		if (r == 0)
			r = wait_and_handle(s, &shown);
	}
	return r;
}

static void end(struct screen *s)
{
	model_done(&s->model);
	sample_free(s->sample);
	close_fd(&s->signals);
}

static int run(struct screen *s, uint64_t count, struct sample *first)
{
	int r = show(s, first), code;

	if (r == 0)
		r = block_signals(s);
	if (r < 0)
		return ctl_error(CTL_FAILED, "top: %s", strerror(-r));
	code = open_terminal(s);
	if (code)
		return code;
	r = loop(s, count);
	close_terminal(s);
	return r < 0 ? ctl_error(CTL_FAILED, "top: %s", strerror(-r)) : CTL_OK;
}

int screen_run(struct ctl *ctl, struct state *state, uint64_t delay_ms, uint64_t count,
	       struct sample *first)
{
	struct screen s = { .ctl = ctl,
			    .state = state,
			    .delay = delay_ms,
			    .next = clock_monotonic_ms() + delay_ms,
			    .signals = -1 };
	int code;

	sigprocmask(SIG_SETMASK, NULL, &s.before);
	code = run(&s, count, first);
	end(&s);
	if (s.ended_by)
		raise(s.ended_by); /* it is blocked until here */
	sigprocmask(SIG_SETMASK, &s.before, NULL);
	return code;
}
