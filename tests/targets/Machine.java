// SPDX-License-Identifier: GPL-3.0-or-later

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * A Java virtual machine: threads of Java that pack and unpack by zlib, which allocates by malloc,
 * are compiled meanwhile, and are stopped at safe points to collect garbage.
 *
 *	check   "ok" if they have moved on
 *	keep N  allocate N blocks of 100 bytes in keep_blocks(), in C: "kept"
 *	stop    "ended"
 *
 * The argument is the library that has keep_blocks().
 */
class Machine {
	static final int WORKERS = 3;
	static final AtomicLongArray rounds = new AtomicLongArray(WORKERS);

	static native void keep(int count);

	static void work(int worker) {
		for (int n = 1;; n++) {
			byte[] text = new byte[1 + n % 3000], packed = new byte[4000];
			byte[] whole = new byte[text.length];
			Deflater deflater = new Deflater();
			Inflater inflater = new Inflater();

			Arrays.fill(text, (byte) n);
			deflater.setInput(text);
			deflater.finish();
			try {
				inflater.setInput(packed, 0, deflater.deflate(packed));
				inflater.inflate(whole);
				Thread.sleep(n % 16 == 0 ? 1 : 0);
			} catch (Exception failure) {
				fail(failure.toString());
			}
			if (!Arrays.equals(text, whole))
				fail("a text is not what it was");
			deflater.end();
			inflater.end();
			rounds.incrementAndGet(worker);
		}
	}

	static void fail(String why) {
		System.out.println(why);
		System.exit(1);
	}

	static String check() throws InterruptedException {
		for (int worker = 0; worker < WORKERS; worker++) {
			long before = rounds.get(worker);

			for (int n = 0; rounds.get(worker) == before; n++) {
				if (n == 5000)
					return "stuck";
				Thread.sleep(1);
			}
		}
		return "ok";
	}

	static void start(Runnable task) {
		Thread thread = new Thread(task);

		thread.setDaemon(true);
		thread.start();
	}

	static void collect() {
		try {
			for (;;) {
				System.gc();
				Thread.sleep(20);
			}
		} catch (InterruptedException end) {
			fail("interrupted");
		}
	}

	public static void main(String[] arguments) throws Exception {
		BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
		String command;

		System.load(arguments[0]);
		for (int worker = 0; worker < WORKERS; worker++) {
			int number = worker;

			start(() -> work(number));
		}
		start(Machine::collect);
		System.out.println("ready");
		while ((command = commands.readLine()) != null && !command.equals("stop")) {
			if (command.startsWith("keep ")) {
				keep(Integer.parseInt(command.substring(5)));
				System.out.println("kept");
			} else {
				System.out.println(check());
			}
		}
		System.out.println("ended");
	}
}
